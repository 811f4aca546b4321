/* Every kernel that can be chosen, asked of every backend that has a device here. What the tuner's own gate may refuse
 * (a library's FP8 sums on rows with outliers) is not asked for: the plain kernel, and those that the backend writes
 * itself.
 *
 * Arguments, environment and the table as for test_conformance. */
#include "kernels/backend.h"
#include "tests/support/worker/suite.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define SLAB_BYTES ((uint64_t)8 << 20)

enum { VARIANTS_MOST = 128, ALL_MOST = 512, VARIANTS_ALL = 4096, UNOFFERED = 10 };

static struct device device; /* of the group that runs */

static void one_variant(struct device_request *request, const struct variant_problem *problem, struct variant *variant,
                        const double *reference) {
  struct error error;
  enum status status = device.ops->variant_check(device.backend, problem, variant, NULL, &error);
  if (status != STATUS_OK) {
    char text[VARIANT_TEXT_BYTES];
    fail_msg("%s is offered, but refused: %s", variant_text(variant, text), error.text);
  }
  request->variant = variant;
  suite_expect(&device, request, reference);
}

static bool has_family(const struct variant *variants, int count, const struct variant_family *family) {
  for (int i = 0; i < count; i++)
    if (variants[i].family == family)
      return true;
  return false;
}

/* What is offered, and of each family that is not, because others are faster on this device, so many that can run. */
static int list_all(const struct variant_problem *problem, struct variant out[VARIANTS_MOST]) {
  int offered = device.ops->variants(device.backend, problem, NULL, false, out, VARIANTS_MOST), count = offered;
  struct variant *all = calloc(VARIANTS_ALL, sizeof *all);
  assert_non_null(all);
  int found = device.ops->variants(device.backend, problem, NULL, true, all, VARIANTS_ALL);
  for (int begin = 0, end; begin < found; begin = end) {
    for (end = begin + 1; end < found && all[end].family == all[begin].family;)
      end++;
    int step = (end - begin + UNOFFERED - 1) / UNOFFERED;
    for (int i = begin; i < end && count < VARIANTS_MOST && !has_family(out, offered, all[begin].family); i += step)
      out[count++] = all[i];
  }
  free(all);
  return count;
}

static void test_variants(void **state) {
  static const int64_t rows[] = {1, 5, 14, 31, 64, 67};
  for (int kind = 0; kind < device_kinds(device.ops); kind++) {
    struct gemm_weight shape = {
        .n = 129, .k = 260, .format = oracle_kinds[kind].format, .scale = oracle_kinds[kind].scale};
    struct oracle_weight weight;
    struct oracle_x x;
    enum gemm_type x_type = suite_x_type(shape.format, 1), y_type = suite_y_type(shape.format, x_type, kind);
    oracle_weight_make(&weight, &shape, 1 + (uint64_t)kind);
    oracle_x_make(&x, 67, shape.k, x_type, suite_scale_columns(&shape), 11);
    struct device_request request = {
        .weight = device_load(&device, &weight, 0), .shape = &shape, .x = &x, .y_type = y_type, .y_extra = 3};
    double *reference = suite_reference(&x, &weight, NULL, y_type == GEMM_S32);
    for (int i = kind % DEVICE_EVERY % COUNT(rows); i < COUNT(rows); i += DEVICE_EVERY) {
      struct variant_problem problem = {
          .weight = shape, .m = variant_bucket(rows[i]), .x_type = x_type, .y_type = y_type};
      struct variant variants[VARIANTS_MOST];
      struct variant plain = variant_default(&variant_plain);
      int count = list_all(&problem, variants);
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

/* Of W that is wide so that a GPU has several waves of tiles; elsewhere a ragged end and some tiles are as good. */
static int64_t wide(int64_t n) {
  return strcmp(device.ops->name, "cpu") == 0 ? n / 8 : n;
}

/* Rows that kernels for many take by pairs of x, and those that they take in equal parts of K, in runs of tiles, and in
 * whole waves of them; on a GPU by every kernel that is offered. */
static void test_many_rows(void **state) {
  static const int64_t ms[] = {9, 32, 130, 400, 1100};
  static const struct {
    enum gemm_format format;
    enum gemm_type x_type, y_type;
  } kinds[] = {{GEMM_FORMAT_INT2, GEMM_F16, GEMM_F16},
               {GEMM_FORMAT_INT2, GEMM_BF16, GEMM_BF16},
               {GEMM_FORMAT_INT2A8, GEMM_BF16, GEMM_F16}};
  for (int i = 0; i < COUNT(kinds); i++) {
    struct gemm_weight shape = {.n = wide(4500), .k = 300, .format = kinds[i].format, .scale = GEMM_SCALE_GROUP};
    struct oracle_weight weight;
    struct oracle_x x;
    oracle_weight_make(&weight, &shape, 60);
    oracle_x_make(&x, ms[COUNT(ms) - 1], shape.k, kinds[i].x_type, 0, 61 + (uint64_t)i);
    struct backend_weight *handle = device_load(&device, &weight, 0);
    double *reference = suite_reference(&x, &weight, NULL, false);
    for (int j = 0; j < COUNT(ms); j++) {
      enum gemm_type y_type = ms[j] > 100 && ms[j] < 1000 ? GEMM_F32 : kinds[i].y_type;
      struct device_request request = {.weight = handle, .shape = &shape, .x = &x, .m = ms[j], .y_type = y_type};
      struct variant_problem problem = {
          .weight = shape, .m = variant_bucket(ms[j]), .x_type = kinds[i].x_type, .y_type = request.y_type};
      struct variant variants[VARIANTS_MOST];
      suite_expect(&device, &request, reference);
      int count = list_all(&problem, variants);
      for (int v = 0; v < count && strcmp(device.ops->name, "cpu") != 0; v++)
        one_variant(&request, &problem, &variants[v], reference);
    }
    free(reference);
    oracle_x_free(&x);
    device.ops->weight_detach(device.backend, handle);
    oracle_weight_free(&weight);
  }
}

/* The same of FP8 and INT8 with row scales: tiles of all widths in waves, tiles whose K some blocks share, also behind
 * a wave of whole ones, all types of y with a bias, rows of y that lie together and that do not, aligned and not. By
 * all kernels for many rows that can run. */
static void many_rows_of_bytes(enum gemm_format format, int64_t n, int64_t k) {
  static const int64_t ms[] = {90, 100, 200, 300, 700};
  static const enum gemm_type y_types[] = {GEMM_F32, GEMM_F16, GEMM_BF16};
  struct gemm_weight shape = {.n = wide(n), .k = k, .format = format, .scale = GEMM_SCALE_ROW};
  struct oracle_weight weight;
  struct oracle_x x;
  double *bias;
  oracle_weight_make(&weight, &shape, 70);
  oracle_x_make(&x, ms[COUNT(ms) - 1], shape.k, GEMM_BF16, suite_scale_columns(&shape), 71);
  struct backend_weight *handle = device_load(&device, &weight, 0);
  void *bias_data = suite_bias(shape.n, GEMM_F32, &bias);
  double *reference = suite_reference(&x, &weight, bias, false);
  for (int i = 0; i < COUNT(ms) * COUNT(y_types); i++) {
    struct device_request request = {.weight = handle,
                                     .shape = &shape,
                                     .x = &x,
                                     .m = ms[i / COUNT(y_types)],
                                     .y_type = y_types[i % COUNT(y_types)],
                                     .bias = bias_data,
                                     .bias_type = GEMM_F32,
                                     .y_extra = i % 2 ? 4 : 5};
    struct variant_problem problem = {
        .weight = shape, .m = request.m, .x_type = x.type, .y_type = request.y_type, .bias_type = GEMM_F32};
    struct variant variants[ALL_MOST];
    suite_expect(&device, &request, reference);
    int count = device.ops->variants(device.backend, &problem, NULL, true, variants, ALL_MOST);
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

static void test_many_rows_fp8(void **state) {
  many_rows_of_bytes(GEMM_FORMAT_FP8, 1100, 1304);
  many_rows_of_bytes(GEMM_FORMAT_FP8, 4500, 300);
}

static void test_many_rows_int8(void **state) {
  many_rows_of_bytes(GEMM_FORMAT_INT8, 1037, 1304);
}

/* Blocks of rows of W that two clusters have: each its part of K, of which the one leaves its sums to the other. */
static void test_shared_rows(void **state) {
  static const int64_t ms[] = {1, 5, 16};
  static const int32_t rows[] = {68, 100, 156};
  static const struct gemm_weight shapes[] = {
      {.n = 330, .k = 2100, .format = GEMM_FORMAT_INT4, .scale = GEMM_SCALE_GROUP},
      {.n = 330, .k = 2100, .format = GEMM_FORMAT_MXFP4, .scale = GEMM_SCALE_GROUP32},
  };
  for (int i = 0; i < COUNT(shapes) * COUNT(ms); i++) {
    const struct gemm_weight *shape = &shapes[i / COUNT(ms)];
    struct oracle_weight weight;
    struct oracle_x x;
    oracle_weight_make(&weight, shape, 80);
    oracle_x_make(&x, ms[i % COUNT(ms)], shape->k, i % 2 ? GEMM_F32 : GEMM_F16, 0, 81 + (uint64_t)i);
    struct device_request request = {.weight = device_load(&device, &weight, 0), .shape = shape, .x = &x, .m = x.m};
    struct variant_problem problem = {.weight = *shape, .m = variant_bucket(x.m), .x_type = x.type, .y_type = GEMM_F32};
    double *reference = suite_reference(&x, &weight, NULL, false);
    struct variant variants[ALL_MOST];
    request.y_type = GEMM_F32;
    int count = device.ops->variants(device.backend, &problem, NULL, true, variants, ALL_MOST);
    for (int v = 0; v < count; v++) {
      bool first = strcmp(variants[v].family->name, "int4_few") == 0 && variants[v].values[1] == 64;
      for (int r = 0; r < COUNT(rows) && first; r++) {
        variants[v].values[1] = rows[r];
        one_variant(&request, &problem, &variants[v], reference);
      }
    }
    free(reference);
    device.ops->weight_detach(device.backend, request.weight);
    oracle_x_free(&x);
    oracle_weight_free(&weight);
  }
}

static double greatest_scale(const struct oracle_weight *weight) {
  double most = 0;
  for (uint64_t i = 0; i < weight->layout.scale_count; i++)
    most = fmax(most, fabs(oracle_element(weight->canonical + weight->layout.scales_offset, (int64_t)i,
                                          gemm_scale_type(&weight->shape))));
  return most;
}

/* INT2 with scales so large that codes times scales are beyond halves, by the kernel whose operands these are: blocks
 * with parts of K, with whole blocks of rows, and with both; rows of x that end in a go of another kernel. */
static void test_large_scales(void **state) {
  static const int64_t ms[] = {33, 64, 70, 100};
  static const int32_t blocks[] = {1, 2, 7, 12};
  struct gemm_weight shape = {.n = 700, .k = 1300, .format = GEMM_FORMAT_INT2, .scale = GEMM_SCALE_GROUP};
  struct oracle_weight weight;
  struct oracle_x x;
  (void)state;
  oracle_weight_make(&weight, &shape, 90);
  oracle_weight_multiply(&weight, 60000 / greatest_scale(&weight));
  oracle_x_make(&x, ms[COUNT(ms) - 1], shape.k, GEMM_F16, 0, 91);
  struct device_request request = {
      .weight = device_load(&device, &weight, 0), .shape = &shape, .x = &x, .y_type = GEMM_F32};
  double *reference = suite_reference(&x, &weight, NULL, false);
  for (int i = 0; i < COUNT(ms); i++) {
    struct variant_problem problem = {.weight = shape, .m = ms[i], .x_type = x.type, .y_type = GEMM_F32};
    struct variant variants[ALL_MOST], *first = variants;
    request.m = ms[i];
    request.variant = NULL;
    suite_expect(&device, &request, reference);
    int count = device.ops->variants(device.backend, &problem, NULL, true, variants, ALL_MOST);
    while (first < variants + count && strcmp(first->family->name, "sm80_int2") != 0)
      first++;
    for (int32_t v = 0; v < 5 * COUNT(blocks) && first < variants + count; v++) {
      const int32_t values[] = {4, 4 + v % 5, 1, blocks[v / 5]};
      memcpy(first->values, values, sizeof values);
      one_variant(&request, &problem, first, reference);
    }
  }
  free(reference);
  device.ops->weight_detach(device.backend, request.weight);
  oracle_x_free(&x);
  oracle_weight_free(&weight);
}

static int run_group(const struct backend_ops *ops) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_variants),       cmocka_unit_test(test_many_rows),   cmocka_unit_test(test_many_rows_fp8),
      cmocka_unit_test(test_many_rows_int8), cmocka_unit_test(test_shared_rows), cmocka_unit_test(test_large_scales),
  };
  device_group(&device, ops, SLAB_BYTES);
  return cmocka_run_group_tests_name(ops->name, tests, device_group_open, device_group_close);
}

int main(int count, char **arguments) {
  int failed = device_groups(count, arguments, run_group);
  suite_table();
  return failed;
}
