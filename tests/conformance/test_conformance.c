/* What every backend must compute, asked of every backend that has a device here.
 *
 * `test_conformance cpu` (or GEMMD_TEST_BACKEND=cpu) asks one backend, and fails where it has no device. The last lines
 * are a table of the worst row's relative error that was seen, by backend, format and type of y. */
#include "kernels/backend.h"
#include "kernels/cpu/micro.h"
#include "proto/number.h"
#include "tests/support/device.h"
#include "tests/support/oracle.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define SLAB_BYTES ((uint64_t)8 << 20)

enum { FORMATS = 7, TYPES = 7, MOST_BACKENDS = 4 };

static const enum gemm_type bias_types[] = {GEMM_TYPE_NONE, GEMM_F32, GEMM_F16, GEMM_BF16};

static struct device device;                        /* of the group that runs */
static int current;                                 /* its place in backend_table */
static double worst[MOST_BACKENDS][FORMATS][TYPES]; /* row error seen */
static int products[MOST_BACKENDS][FORMATS][TYPES];

static int64_t scale_columns(const struct gemm_weight *shape) {
  return shape->scale == GEMM_SCALE_BLOCK ? (shape->k + 127) / 128 : 1;
}

/* The n-th (cyclic) type that the format takes. */
static enum gemm_type nth_x_type(enum gemm_format format, int n) {
  for (int type = GEMM_F32;; type = type % (TYPES - 1) + 1) {
    if (gemm_takes_x(format, (enum gemm_type)type) && n-- <= 0) {
      return (enum gemm_type)type;
    }
  }
}

static enum gemm_type nth_y_type(enum gemm_format format, enum gemm_type x_type, int n) {
  for (int type = GEMM_F32;; type = type % (TYPES - 1) + 1) {
    if (gemm_takes_y(format, x_type, (enum gemm_type)type) && n-- <= 0) {
      return (enum gemm_type)type;
    }
  }
}

/* Compares dense y, [m, n], with the reference, and notes the worst row that the gate applies to. */
static void judge(const struct device_request *request, const void *y, const double *reference) {
  const struct gemm_weight *shape = request->shape;
  double *seen = &worst[current][shape->format][request->y_type];
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
  products[current][shape->format][request->y_type]++;
}

/* Runs it twice: right, and the same bits again. */
static void expect(const struct device_request *request, const double *reference) {
  uint64_t bytes = (uint64_t)(request->m * request->shape->n) * gemm_type_bytes(request->y_type);
  void *first = device_run(&device, request), *second = device_run(&device, request);
  judge(request, first, reference);
  assert_memory_equal(first, second, bytes);
  free(first);
  free(second);
}

static double *reference_of(const struct oracle_x *x, const struct oracle_weight *weight, const double *bias,
                            bool raw) {
  double *values = oracle_x_values(x, &weight->shape, raw);
  double *out = raw ? oracle_product_raw(values, x->m, weight) : oracle_product(values, x->m, weight, bias);
  free(values);
  return out;
}

/* A bias of `type`, and its values as float64 in *values. */
static void *make_bias(int64_t n, enum gemm_type type, double **values) {
  struct oracle_x bias;
  oracle_x_make(&bias, 1, n, type, 1, 77);
  *values = malloc((size_t)n * sizeof(double));
  assert_non_null(*values);
  for (int64_t i = 0; i < n; i++) {
    (*values)[i] = oracle_element(bias.data, i, type);
  }
  return bias.data;
}

/* ---- every type */

static void one_type(const struct oracle_weight *weight, struct device_request *request, enum gemm_type bias_type) {
  double *bias = NULL;
  void *bias_data = bias_type != GEMM_TYPE_NONE ? make_bias(weight->shape.n, bias_type, &bias) : NULL;
  request->bias_type = bias_type;
  request->bias = bias_data;
  double *reference = reference_of(request->x, weight, bias, request->y_type == GEMM_S32);
  expect(request, reference);
  free(reference);
  free(bias_data);
  free(bias);
}

static void test_types(void **state) {
  (void)state;
  for (int kind = 0; kind < ORACLE_KINDS; kind++) {
    struct gemm_weight shape = {
        .n = 129, .k = 260, .format = oracle_kinds[kind].format, .scale = oracle_kinds[kind].scale};
    struct oracle_weight weight;
    oracle_weight_make(&weight, &shape, 1 + (uint64_t)kind);
    struct backend_weight *handle = device_load(&device, &weight, 0);
    for (int x_type = GEMM_F32; x_type < TYPES; x_type++) {
      if (!gemm_takes_x(shape.format, (enum gemm_type)x_type)) {
        continue;
      }
      struct oracle_x x;
      oracle_x_make(&x, 17, shape.k, (enum gemm_type)x_type, scale_columns(&shape), 5);
      for (int i = 0; i < TYPES * COUNT(bias_types); i++) {
        enum gemm_type y_type = (enum gemm_type)(i / COUNT(bias_types)), bias_type = bias_types[i % COUNT(bias_types)];
        struct device_request request = {
            .weight = handle, .shape = &shape, .x = &x, .m = x.m, .y_type = y_type, .x_extra = i % 3, .y_extra = i % 4};
        if (gemm_takes_y(shape.format, (enum gemm_type)x_type, y_type) &&
            (y_type != GEMM_S32 || bias_type == GEMM_TYPE_NONE)) {
          one_type(&weight, &request, bias_type);
        }
      }
      oracle_x_free(&x);
    }
    device.ops->weight_detach(device.backend, handle);
    oracle_weight_free(&weight);
  }
}

/* ---- every size */

/* x of codes without scales: the sums themselves. */
static void expect_raw(struct device_request request, const struct oracle_weight *weight) {
  double *reference = reference_of(request.x, weight, NULL, true);
  request.y_type = GEMM_S32;
  expect(&request, reference);
  free(reference);
}

static void test_ragged_m(void **state) {
  (void)state;
  for (int kind = 0; kind < ORACLE_KINDS; kind++) {
    struct gemm_weight shape = {
        .n = 66, .k = 300, .format = oracle_kinds[kind].format, .scale = oracle_kinds[kind].scale};
    struct oracle_weight weight;
    oracle_weight_make(&weight, &shape, 20 + (uint64_t)kind);
    struct backend_weight *handle = device_load(&device, &weight, 0);
    for (int x_index = 0; x_index < 4; x_index++) {
      enum gemm_type x_type = nth_x_type(shape.format, x_index);
      struct oracle_x x;
      oracle_x_make(&x, 1024, shape.k, x_type, scale_columns(&shape), 9 + (uint64_t)x_index);
      double *reference = reference_of(&x, &weight, NULL, false);
      for (int m = x_index; m < 72; m += 4) {
        struct device_request request = {.weight = handle, .shape = &shape, .x = &x, .m = m > 67 ? 1024 : m};
        request.y_type = nth_y_type(shape.format, x_type, m / 4 % 3);
        if (m > 0) {
          expect(&request, reference);
        }
        if (m > 67 && gemm_takes_y(shape.format, x_type, GEMM_S32)) {
          expect_raw(request, &weight);
        }
      }
      free(reference);
      oracle_x_free(&x);
    }
    device.ops->weight_detach(device.backend, handle);
    oracle_weight_free(&weight);
  }
}

/* Scales from the least that f16 has to those twice which it has not. */
static void test_scales_at_the_ends(void **state) {
  static const int64_t ms[] = {1, 33, 70, 131};
  static const double factors[] = {2e-6, 5e5};
  static const enum gemm_type x_types[] = {GEMM_F16, GEMM_BF16, GEMM_F32};
  (void)state;
  struct gemm_weight shape = {.n = 700, .k = 300, .format = GEMM_FORMAT_INT2, .scale = GEMM_SCALE_GROUP};
  for (int i = 0; i < COUNT(factors) * COUNT(x_types); i++) {
    struct oracle_weight weight;
    struct oracle_x x;
    oracle_weight_make(&weight, &shape, 70);
    oracle_weight_multiply(&weight, factors[i / COUNT(x_types)]);
    oracle_x_make(&x, ms[COUNT(ms) - 1], shape.k, x_types[i % COUNT(x_types)], 0, 71);
    struct backend_weight *handle = device_load(&device, &weight, 0);
    double *reference = reference_of(&x, &weight, NULL, false);
    for (int j = 0; j < COUNT(ms); j++) {
      struct device_request request = {.weight = handle, .shape = &shape, .x = &x, .m = ms[j], .y_type = GEMM_F32};
      expect(&request, reference);
    }
    free(reference);
    device.ops->weight_detach(device.backend, handle);
    oracle_x_free(&x);
    oracle_weight_free(&weight);
  }
}

static void one_size(const struct gemm_weight *shape, int sample) {
  static const int64_t ms[] = {1, 5, 33};
  struct oracle_weight weight;
  struct oracle_x x;
  enum gemm_type x_type = nth_x_type(shape->format, sample);
  oracle_weight_make(&weight, shape, (uint64_t)(shape->n * 131 + shape->k));
  oracle_x_make(&x, 33, shape->k, x_type, scale_columns(shape), (uint64_t)sample);
  struct backend_weight *handle = device_load(&device, &weight, 0);
  double *reference = reference_of(&x, &weight, NULL, false);
  for (int i = 0; i < COUNT(ms); i++) {
    struct device_request request = {
        .weight = handle, .shape = shape, .x = &x, .m = ms[i], .x_extra = sample % 5, .y_extra = sample % 7};
    request.y_type = nth_y_type(shape->format, x_type, (sample + i) % 3);
    expect(&request, reference);
    if (gemm_takes_y(shape->format, x_type, GEMM_S32)) {
      expect_raw(request, &weight);
    }
  }
  free(reference);
  device.ops->weight_detach(device.backend, handle);
  oracle_x_free(&x);
  oracle_weight_free(&weight);
}

static void test_ragged_n_k(void **state) {
  static const int64_t ns[] = {1, 3, 16, 127, 128, 129, 257}, ks[] = {1, 15, 16, 17, 127, 128, 129, 255, 1000, 4099};
  (void)state;
  for (int i = 0; i < ORACLE_KINDS * COUNT(ns) * COUNT(ks); i++) {
    int kind = i / (COUNT(ns) * COUNT(ks));
    struct gemm_weight shape = {.n = ns[i / COUNT(ks) % COUNT(ns)],
                                .k = ks[i % COUNT(ks)],
                                .format = oracle_kinds[kind].format,
                                .scale = oracle_kinds[kind].scale};
    one_size(&shape, i);
  }
}

static void test_long_k(void **state) {
  (void)state;
  for (int kind = 0; kind < ORACLE_KINDS; kind++) {
    struct gemm_weight shape = {
        .n = 5, .k = 131071, .format = oracle_kinds[kind].format, .scale = oracle_kinds[kind].scale};
    for (int sample = 0; sample < 4; sample++) {
      one_size(&shape, sample);
    }
  }
}

/* The largest sum that s32 must hold, and its negative. */
static void test_int8_extremes(void **state) {
  (void)state;
  int64_t k = 131071;
  int8_t *codes = malloc((size_t)(2 * k));
  assert_non_null(codes);
  memset(codes, -128, (size_t)k);
  memset(codes + k, 127, (size_t)k);
  struct oracle_weight weight;
  struct oracle_x x;
  oracle_weight_from_codes(&weight, 2, k, codes);
  oracle_x_make(&x, 1, k, GEMM_INT8, 1, 1);
  memset(x.data, -128, (size_t)k);
  struct device_request request = {
      .weight = device_load(&device, &weight, 0), .shape = &weight.shape, .x = &x, .m = 1, .y_type = GEMM_S32};
  int32_t *y = device_run(&device, &request);
  assert_int_equal(y[0], 128 * 128 * 131071);
  assert_int_equal(y[1], -128 * 127 * 131071);
  free(y);
  device.ops->weight_detach(device.backend, request.weight);
  oracle_x_free(&x);
  oracle_weight_free(&weight);
  free(codes);
}

/* ---- several jobs at once */

static void one_chain(const struct oracle_weight *weight, struct backend_weight *handle, const struct oracle_x *x,
                      const double *reference, int sample) {
  static const int64_t ms[] = {2, 9, 64, 65, 150};
  for (int i = 0; i < COUNT(ms); i++) {
    struct device_request request = {.weight = handle,
                                     .shape = &weight->shape,
                                     .x = x,
                                     .m = ms[i],
                                     .y_type = nth_y_type(weight->shape.format, x->type, (sample + i) % 3),
                                     .x_extra = (sample + i) % 3,
                                     .y_extra = (sample + i) % 4};
    expect(&request, reference);
    void *first = device_run_chain(&device, &request, 3), *second = device_run_chain(&device, &request, 3);
    judge(&request, first, reference);
    assert_memory_equal(first, second, (uint64_t)(request.m * weight->shape.n) * gemm_type_bytes(request.y_type));
    free(first);
    free(second);
  }
}

static void test_chains(void **state) {
  (void)state;
  for (int kind = 0; kind < ORACLE_KINDS; kind++) {
    struct gemm_weight shape = {
        .n = 132, .k = 516, .format = oracle_kinds[kind].format, .scale = oracle_kinds[kind].scale};
    struct oracle_weight weight;
    oracle_weight_make(&weight, &shape, 40 + (uint64_t)kind);
    struct backend_weight *handle = device_load(&device, &weight, 0);
    for (int x_index = 0; x_index < 4; x_index++) {
      struct oracle_x x;
      oracle_x_make(&x, 150, shape.k, nth_x_type(shape.format, x_index), scale_columns(&shape), 6);
      double *reference = reference_of(&x, &weight, NULL, false);
      one_chain(&weight, handle, &x, reference, kind + x_index);
      free(reference);
      oracle_x_free(&x);
    }
    device.ops->weight_detach(device.backend, handle);
    oracle_weight_free(&weight);
  }
}

/* ---- numbers */

/* Rows at the edges of the quantizers: ties, the clamp, the smallest scale and the first that counts as zero. `s` is
 * the scale of each but the last two, `top` the code of the largest magnitude. */
static void edge_rows(struct oracle_x *x, float top) {
  for (int64_t k = 0; k < x->k; k++) {
    float half = (float)(k % 250 - 125) + 0.5f, step = (float)ldexp((double)(k % 16) + 0.5, (int)(k % 17) - 9);
    bool first = k % 128 == 0; /* one largest element in each block */
    oracle_x_set(x, 0, k, first ? top : half);
    oracle_x_set(x, 1, k, first ? -top : step > top ? top : step);
    if (x->type == GEMM_F32) {
      oracle_x_set(x, 2, k, (first ? top : half) * 0x1p-126f);
      oracle_x_set(x, 3, k, (first ? nextafterf(top, 0) : half) * 0x1p-126f);
    }
  }
}

/* With W = 1 and scales 1, y is scale * code, which tells the code. */
static void check_codes(const struct gemm_weight *shape, enum gemm_type x_type) {
  struct oracle_weight weight;
  struct oracle_x x;
  oracle_weight_identity(&weight, shape);
  oracle_x_make(&x, 40, shape->k, x_type, 1, 3);
  edge_rows(&x, shape->format == GEMM_FORMAT_FP8 ? 448 : 127);
  struct device_request request = {
      .weight = device_load(&device, &weight, 0), .shape = shape, .x = &x, .m = x.m, .y_type = GEMM_F32};
  double *values = oracle_x_values(&x, shape, false);
  float *y = device_run(&device, &request);
  for (int64_t i = 0; i < x.m * shape->k; i++) {
    if (y[i] != (float)values[i]) {
      fail_msg("%s %s x %s: row %lld element %lld: %a became %a, not %a", gemm_format_name(shape->format),
               gemm_scale_name(shape->scale), gemm_type_name(x_type), (long long)(i / shape->k),
               (long long)(i % shape->k), oracle_element(x.data, i, x_type), (double)y[i], values[i]);
    }
  }
  free(values);
  free(y);
  device.ops->weight_detach(device.backend, request.weight);
  oracle_x_free(&x);
  oracle_weight_free(&weight);
}

static void test_codes(void **state) {
  (void)state;
  for (int kind = 0; kind < ORACLE_KINDS * 3; kind++) {
    struct gemm_weight shape = {
        .n = 300, .k = 300, .format = oracle_kinds[kind / 3].format, .scale = oracle_kinds[kind / 3].scale};
    if (gemm_quantizes_x(shape.format)) {
      check_codes(&shape, (enum gemm_type)(GEMM_F32 + kind % 3));
    }
  }
}

/* One element that is not finite spoils its own row and no other's bits. */
static void check_non_finite(const struct gemm_weight *shape, enum gemm_type x_type, enum gemm_type y_type,
                             float value) {
  struct oracle_weight weight;
  struct oracle_x x;
  oracle_weight_make(&weight, shape, 31);
  oracle_x_make(&x, 9, shape->k, x_type, scale_columns(shape), 32);
  struct device_request request = {
      .weight = device_load(&device, &weight, 0), .shape = shape, .x = &x, .m = x.m, .y_type = y_type};
  uint64_t row_bytes = (uint64_t)shape->n * gemm_type_bytes(y_type);
  uint8_t *clean = device_run(&device, &request);
  oracle_x_set(&x, 7, 150, value);
  uint8_t *spoilt = device_run(&device, &request);
  assert_memory_equal(clean, spoilt, 7 * row_bytes);
  assert_memory_equal(clean + 8 * row_bytes, spoilt + 8 * row_bytes, row_bytes);
  for (int64_t n = 0; n < shape->n; n++) {
    double y = oracle_element(spoilt, 7 * shape->n + n, y_type);
    if (gemm_quantizes_x(shape->format) ? !isnan(y) : isfinite(y)) {
      fail_msg("%s %s x %s y %s: %g in x made %g", gemm_format_name(shape->format), gemm_scale_name(shape->scale),
               gemm_type_name(x_type), gemm_type_name(y_type), (double)value, y);
    }
  }
  free(clean);
  free(spoilt);
  device.ops->weight_detach(device.backend, request.weight);
  oracle_x_free(&x);
  oracle_weight_free(&weight);
}

static void test_non_finite(void **state) {
  (void)state;
  for (int i = 0; i < ORACLE_KINDS * 9; i++) {
    struct gemm_weight shape = {
        .n = 131, .k = 400, .format = oracle_kinds[i / 9].format, .scale = oracle_kinds[i / 9].scale};
    enum gemm_type x_type = (enum gemm_type)(GEMM_F32 + i / 3 % 3), y_type = (enum gemm_type)(GEMM_F32 + i % 3);
    if (gemm_takes_x(shape.format, x_type)) {
      check_non_finite(&shape, x_type, y_type, NAN);
      check_non_finite(&shape, x_type, y_type, -INFINITY);
    }
    if (shape.format == GEMM_FORMAT_FP8 && i % 9 == 0) {
      check_non_finite(&shape, GEMM_E4M3, y_type, NAN);
    }
  }
}

/* ---- groups */

/* ---- every kernel that can be chosen. What the tuner's own gate may refuse (a library's FP8 sums on rows with
 * outliers) is not asked for here: the plain kernel, and those that the backend writes itself. */

enum { VARIANTS_MOST = 64 };

static void one_variant(struct device_request *request, const struct variant_problem *problem, struct variant *variant,
                        const double *reference) {
  struct error error;
  enum status status = device.ops->variant_check(device.backend, problem, variant, NULL, &error);
  if (status != STATUS_OK) {
    char text[VARIANT_TEXT_BYTES];
    fail_msg("%s is offered, but refused: %s", variant_text(variant, text), error.text);
  }
  request->variant = variant;
  expect(request, reference);
}

static void test_variants(void **state) {
  (void)state;
  static const int64_t rows[] = {1, 5, 64, 67};
  for (int kind = 0; kind < ORACLE_KINDS; kind++) {
    struct gemm_weight shape = {
        .n = 129, .k = 260, .format = oracle_kinds[kind].format, .scale = oracle_kinds[kind].scale};
    struct oracle_weight weight;
    struct oracle_x x;
    enum gemm_type x_type = nth_x_type(shape.format, 1), y_type = nth_y_type(shape.format, x_type, kind);
    oracle_weight_make(&weight, &shape, 1 + (uint64_t)kind);
    oracle_x_make(&x, 67, shape.k, x_type, scale_columns(&shape), 11);
    struct device_request request = {
        .weight = device_load(&device, &weight, 0), .shape = &shape, .x = &x, .y_type = y_type, .y_extra = 3};
    double *reference = reference_of(&x, &weight, NULL, y_type == GEMM_S32);
    for (int i = 0; i < COUNT(rows); i++) {
      struct variant_problem problem = {
          .weight = shape, .m = variant_bucket(rows[i]), .x_type = x_type, .y_type = y_type};
      struct variant variants[VARIANTS_MOST];
      struct variant plain = variant_default(&variant_plain);
      int count = device.ops->variants(device.backend, &problem, NULL, false, variants, VARIANTS_MOST);
      assert_true(count >= 1);
      if (strcmp(device.ops->name, "cpu") == 0) /* cuBLASLt's are for the gate */
        count += device.ops->library_variants(device.backend, &problem, false, variants + count, VARIANTS_MOST - count);
      request.m = rows[i];
      one_variant(&request, &problem, &plain, reference);
      for (int v = 0; v < count; v++)
        one_variant(&request, &problem, &variants[v], reference);
    }
    free(reference);
    device.ops->weight_detach(device.backend, request.weight);
    oracle_x_free(&x);
    oracle_weight_free(&weight);
  }
}

/* Rows that kernels for many take in equal parts of K, in runs of tiles, and in whole waves of them; on a GPU by every
 * kernel that is offered. */
static void test_many_rows(void **state) {
  static const int64_t ms[] = {130, 400, 1100};
  static const struct {
    enum gemm_format format;
    enum gemm_type x_type, y_type;
  } kinds[] = {{GEMM_FORMAT_INT2, GEMM_F16, GEMM_F16},
               {GEMM_FORMAT_INT2, GEMM_BF16, GEMM_BF16},
               {GEMM_FORMAT_INT2A8, GEMM_BF16, GEMM_F16}};
  (void)state;
  for (int i = 0; i < COUNT(kinds); i++) {
    struct gemm_weight shape = {.n = 4500, .k = 300, .format = kinds[i].format, .scale = GEMM_SCALE_GROUP};
    struct oracle_weight weight;
    struct oracle_x x;
    oracle_weight_make(&weight, &shape, 60);
    oracle_x_make(&x, ms[COUNT(ms) - 1], shape.k, kinds[i].x_type, 0, 61 + (uint64_t)i);
    struct backend_weight *handle = device_load(&device, &weight, 0);
    double *reference = reference_of(&x, &weight, NULL, false);
    for (int j = 0; j < COUNT(ms); j++) {
      struct device_request request = {
          .weight = handle, .shape = &shape, .x = &x, .m = ms[j], .y_type = ms[j] < 1000 ? GEMM_F32 : kinds[i].y_type};
      struct variant_problem problem = {
          .weight = shape, .m = variant_bucket(ms[j]), .x_type = kinds[i].x_type, .y_type = request.y_type};
      struct variant variants[VARIANTS_MOST];
      expect(&request, reference);
      int count = device.ops->variants(device.backend, &problem, NULL, false, variants, VARIANTS_MOST);
      for (int v = 0; v < count && strcmp(device.ops->name, "cpu") != 0; v++)
        one_variant(&request, &problem, &variants[v], reference);
    }
    free(reference);
    oracle_x_free(&x);
    device.ops->weight_detach(device.backend, handle);
    oracle_weight_free(&weight);
  }
}

/* The same of FP8 with row scales: tiles in waves, tiles whose K some blocks share, all types of y with a bias, rows of
 * y that lie together and that do not. By the kernels for many rows, where they are offered. */
static void test_many_rows_fp8(void **state) {
  static const int64_t ms[] = {100, 300, 700};
  static const enum gemm_type y_types[] = {GEMM_F32, GEMM_F16, GEMM_BF16};
  (void)state;
  struct gemm_weight shape = {.n = 1100, .k = 1304, .format = GEMM_FORMAT_FP8, .scale = GEMM_SCALE_ROW};
  struct oracle_weight weight;
  struct oracle_x x;
  double *bias;
  oracle_weight_make(&weight, &shape, 70);
  oracle_x_make(&x, ms[COUNT(ms) - 1], shape.k, GEMM_BF16, scale_columns(&shape), 71);
  struct backend_weight *handle = device_load(&device, &weight, 0);
  void *bias_data = make_bias(shape.n, GEMM_F32, &bias);
  double *reference = reference_of(&x, &weight, bias, false);
  for (int i = 0; i < COUNT(ms) * COUNT(y_types); i++) {
    struct device_request request = {.weight = handle,
                                     .shape = &shape,
                                     .x = &x,
                                     .m = ms[i / COUNT(y_types)],
                                     .y_type = y_types[i % COUNT(y_types)],
                                     .bias = bias_data,
                                     .bias_type = GEMM_F32,
                                     .y_extra = i % 2 ? 4 : 5};
    struct variant_problem problem = {.weight = shape,
                                      .m = variant_bucket(request.m),
                                      .x_type = x.type,
                                      .y_type = request.y_type,
                                      .bias_type = GEMM_F32};
    struct variant variants[VARIANTS_MOST];
    expect(&request, reference);
    int count = device.ops->variants(device.backend, &problem, NULL, false, variants, VARIANTS_MOST);
    for (int v = 0; v < count; v++)
      if (strcmp(variants[v].family->name, "fp8_many") == 0)
        one_variant(&request, &problem, &variants[v], reference);
  }
  free(reference);
  free(bias_data);
  free(bias);
  device.ops->weight_detach(device.backend, handle);
  oracle_x_free(&x);
  oracle_weight_free(&weight);
}

/* The CPU's other instruction sets, by the environment variable that users have for it: what depends on them, in a
 * fraction of the time. */
static int run_instruction_sets(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_types), cmocka_unit_test(test_ragged_m),   cmocka_unit_test(test_int8_extremes),
      cmocka_unit_test(test_codes), cmocka_unit_test(test_non_finite), cmocka_unit_test(test_chains),
  };
  const struct micro_ops *best = micro_choose(NULL);
  int failed = 0;
  for (int i = 0; micro_table[i] != NULL; i++) {
    if (micro_table[i] != best && micro_table[i]->usable()) {
      setenv("GEMMD_CPU", micro_table[i]->name, 1);
      failed += cmocka_run_group_tests_name(micro_table[i]->name, tests, device_group_open, device_group_close);
    }
  }
  unsetenv("GEMMD_CPU");
  return failed;
}

static int run_group(const struct backend_ops *ops) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_types),         cmocka_unit_test(test_ragged_m),
      cmocka_unit_test(test_many_rows),     cmocka_unit_test(test_many_rows_fp8),
      cmocka_unit_test(test_ragged_n_k),    cmocka_unit_test(test_long_k),
      cmocka_unit_test(test_int8_extremes), cmocka_unit_test(test_codes),
      cmocka_unit_test(test_non_finite),    cmocka_unit_test(test_chains),
      cmocka_unit_test(test_variants),      cmocka_unit_test(test_scales_at_the_ends),
  };
  for (current = 0; backend_table[current] != ops; current++) {
  }
  device_group(&device, ops, SLAB_BYTES);
  int failed = cmocka_run_group_tests_name(ops->name, tests, device_group_open, device_group_close);
  bool sets = strcmp(ops->name, "cpu") == 0 && getenv("GEMMD_CPU") == NULL;
  return failed + (sets ? run_instruction_sets() : 0);
}

static void print_table(void) {
  print_message("%-8s %-6s %-5s %9s %12s %9s\n", "backend", "format", "y", "products", "worst row", "gate");
  for (int b = 0; b < MOST_BACKENDS; b++) {
    for (int i = 0; i < FORMATS * TYPES; i++) {
      enum gemm_format format = (enum gemm_format)(i / TYPES);
      enum gemm_type y_type = (enum gemm_type)(i % TYPES);
      if (products[b][format][y_type] > 0) {
        print_message("%-8s %-6s %-5s %9d %12.2e %9.1e\n", backend_table[b]->name, gemm_format_name(format),
                      gemm_type_name(y_type), products[b][format][y_type], worst[b][format][y_type],
                      oracle_gate(format, y_type));
      }
    }
  }
}

int main(int count, char **arguments) {
  int failed = device_groups(count, arguments, run_group);
  print_table();
  return failed;
}
