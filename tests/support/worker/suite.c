#include "suite.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MOST_BACKENDS = 4 };

static double worst[MOST_BACKENDS][SUITE_FORMATS][SUITE_TYPES]; /* row error seen */
static int products[MOST_BACKENDS][SUITE_FORMATS][SUITE_TYPES];

int64_t suite_scale_columns(const struct gemm_weight *shape) {
  return shape->scale == GEMM_SCALE_BLOCK ? (shape->k + 127) / 128 : 1;
}

enum gemm_type suite_x_type(enum gemm_format format, int n) {
  for (int type = GEMM_F32;; type = type % (SUITE_TYPES - 1) + 1) {
    if (gemm_takes_x(format, (enum gemm_type)type) && n-- <= 0) {
      return (enum gemm_type)type;
    }
  }
}

enum gemm_type suite_y_type(enum gemm_format format, enum gemm_type x_type, int n) {
  for (int type = GEMM_F32;; type = type % (SUITE_TYPES - 1) + 1) {
    if (gemm_takes_y(format, x_type, (enum gemm_type)type) && n-- <= 0) {
      return (enum gemm_type)type;
    }
  }
}

void *suite_bias(int64_t n, enum gemm_type type, double **values) {
  struct oracle_x bias;
  oracle_x_make(&bias, 1, n, type, 1, 77);
  *values = malloc((size_t)n * sizeof(double));
  assert_non_null(*values);
  for (int64_t i = 0; i < n; i++) {
    (*values)[i] = oracle_element(bias.data, i, type);
  }
  return bias.data;
}

double *suite_reference(const struct oracle_x *x, const struct oracle_weight *weight, const double *bias, bool raw) {
  double *values = oracle_x_seen(x, weight, raw);
  double *out = raw ? oracle_product_raw(values, x->m, weight) : oracle_product(values, x->m, weight, bias);
  free(values);
  return out;
}

/* Its place in backend_table. */
static int backend_place(const struct backend_ops *ops) {
  int place = 0;
  while (backend_table[place] != ops)
    place++;
  return place;
}

void suite_judge(const struct device *device, const struct device_request *request, const void *y,
                 const double *reference) {
  const struct gemm_weight *shape = request->shape;
  int place = backend_place(device->ops);
  double *seen = &worst[place][shape->format][request->y_type];
  for (int64_t row = 0; row < request->m; row++) {
    const uint8_t *y_row = (const uint8_t *)y + (uint64_t)(row * shape->n) * gemm_type_bytes(request->y_type);
    double error = oracle_row_error(shape->format, reference + row * shape->n, y_row, request->y_type, shape->n);
    double limit = oracle_row_gate(shape, request->y_type, reference + row * shape->n);
    if (!(error <= limit)) {
      fail_msg("%s %s x %s y %s bias %s M %lld N %lld K %lld: row %lld is off by %.3g, allowed %.3g",
               gemm_format_name(shape->format), gemm_scale_name(shape->scale), gemm_type_name(request->x->type),
               gemm_type_name(request->y_type), gemm_type_name(request->bias_type), (long long)request->m,
               (long long)shape->n, (long long)shape->k, (long long)row, error, limit);
    }
    *seen = limit > oracle_gate(shape->format, request->y_type) ? *seen : fmax(*seen, error);
  }
  products[place][shape->format][request->y_type]++;
}

void suite_expect(struct device *device, const struct device_request *request, const double *reference) {
  uint64_t bytes = (uint64_t)(request->m * request->shape->n) * gemm_type_bytes(request->y_type);
  void *first = device_run(device, request), *second = device_run(device, request);
  suite_judge(device, request, first, reference);
  assert_memory_equal(first, second, bytes);
  free(first);
  free(second);
}

void suite_table(void) {
  print_message("%-8s %-6s %-5s %9s %12s %9s\n", "backend", "format", "y", "products", "worst row", "gate");
  for (int b = 0; b < MOST_BACKENDS; b++) {
    for (int i = 0; i < SUITE_FORMATS * SUITE_TYPES; i++) {
      enum gemm_format format = (enum gemm_format)(i / SUITE_TYPES);
      enum gemm_type y_type = (enum gemm_type)(i % SUITE_TYPES);
      if (products[b][format][y_type] > 0) {
        print_message("%-8s %-6s %-5s %9d %12.2e %9.1e\n", backend_table[b]->name, gemm_format_name(format),
                      gemm_type_name(y_type), products[b][format][y_type], worst[b][format][y_type],
                      oracle_gate(format, y_type));
      }
    }
  }
}
