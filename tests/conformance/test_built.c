/* Kernels that are built at run time, asked of every backend that builds any: right for all their formats, ragged
 * sizes, types and biases, with K whole and in slices of every mode, and the same bits twice. One line a backend says
 * how many products were compared, or why none. */
#include "kernels/backend.h"
#include "tests/support/reference/oracle.h"
#include "tests/support/system/folder.h"
#include "tests/support/worker/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define SLAB_BYTES ((uint64_t)8 << 20)

enum { M_MOST = 150 };

static struct device device;
static int products;
static char why_none[256];

static const struct gemm_weight shapes[] = {
    {.n = 129, .k = 260, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW},
    {.n = 64, .k = 1000, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ONE},
    {.n = 200, .k = 520, .format = GEMM_FORMAT_FP8, .scale = GEMM_SCALE_ROW},
    {.n = 150, .k = 777, .format = GEMM_FORMAT_F16, .scale = GEMM_SCALE_NONE},
    {.n = 31, .k = 1100, .format = GEMM_FORMAT_BF16, .scale = GEMM_SCALE_NONE},
    {.n = 150, .k = 1100, .format = GEMM_FORMAT_INT2, .scale = GEMM_SCALE_GROUP},
    {.n = 200, .k = 2048, .format = GEMM_FORMAT_INT2, .scale = GEMM_SCALE_ROW},
    {.n = 77, .k = 1700, .format = GEMM_FORMAT_INT2A8, .scale = GEMM_SCALE_GROUP},
};

/* `rounds`: sums of slices in y's type, which the gates of 16 bits do not allow for. */
static const struct {
  const char *kernel;
  bool rounds;
  bool groups; /* steps of whole groups of K, for INT2 */
} kernels[] = {
    {"tile block_m=64 block_n=64 num_stages=3", false, false},
    {"tile block_m=16 block_n=48 block_k=96 num_warps=3 num_stages=2 group_size_m=1", false, false},
    {"tile block_m=128 block_n=64 block_k=128 num_warps=8 num_stages=1", false, false},
    {"tile block_m=64 block_n=64 num_stages=3 split_k=4", false, false},
    {"tile block_m=16 block_n=48 block_k=96 num_warps=3 num_stages=2 split_k=3 split_k_mode=1", false, false},
    {"tile block_m=64 block_n=64 num_stages=3 split_k=3 split_k_mode=2", true, false},
    {"tile block_m=128 block_n=64 block_k=128 num_warps=8 num_stages=1", false, true},
    {"tile block_m=16 block_n=48 block_k=256 num_warps=3 num_stages=2 group_size_m=1", false, true},
    {"tile block_m=64 block_n=64 block_k=128 num_stages=3 split_k=4", false, true},
    {"tile block_m=16 block_n=48 block_k=256 num_warps=3 num_stages=2 split_k=3 split_k_mode=1", false, true},
    {"tile block_m=64 block_n=64 block_k=128 num_stages=3 split_k=3 split_k_mode=2", true, true},
};

static void judge(const struct device_request *request, const void *y, const double *reference, const char *kernel) {
  const struct gemm_weight *shape = request->shape;
  for (int64_t row = 0; row < request->m; row++) {
    const uint8_t *y_row = (const uint8_t *)y + (uint64_t)(row * shape->n) * gemm_type_bytes(request->y_type);
    double error = oracle_row_error(shape->format, reference + row * shape->n, y_row, request->y_type, shape->n);
    double limit = oracle_row_gate(shape, request->y_type, reference + row * shape->n);
    if (!(error <= limit))
      fail_msg("%s for %s N %lld K %lld M %lld, y %s: row %lld is off by %.3g, allowed %.3g", kernel,
               gemm_format_name(shape->format), (long long)shape->n, (long long)shape->k, (long long)request->m,
               gemm_type_name(request->y_type), (long long)row, error, limit);
  }
}

static struct variant built(const struct variant_problem *problem, const char *text) {
  struct variant variant;
  struct error error;
  if (variant_parse(device.ops->families, text, &variant, &error) != STATUS_OK ||
      device.ops->variant_build(device.backend, problem, &variant, &error) != STATUS_OK ||
      device.ops->variant_check(device.backend, problem, &variant, NULL, &error) != STATUS_OK)
    fail_msg("%s: %s", text, error.text);
  assert_true(device.ops->variant_foreign(&variant));
  return variant;
}

static void compare(const struct oracle_weight *weight, struct backend_weight *handle, const struct oracle_x *x,
                    int64_t m, enum gemm_type y_type, const char *kernel, bool biased) {
  struct variant_problem problem = {
      .weight = weight->shape, .m = variant_bucket(m), .x_type = x->type, .y_type = y_type};
  struct variant variant = built(&problem, kernel);
  double *values = oracle_x_values(x, &weight->shape, y_type == GEMM_S32), *bias = NULL;
  struct oracle_x bias_row = {.data = NULL};
  if (biased) {
    oracle_x_make(&bias_row, 1, weight->shape.n, GEMM_BF16, 1, 7);
    bias = calloc((size_t)weight->shape.n, sizeof *bias);
    assert_non_null(bias);
    for (int64_t i = 0; i < weight->shape.n; i++)
      bias[i] = oracle_element(bias_row.data, i, GEMM_BF16);
  }
  double *reference =
      y_type == GEMM_S32 ? oracle_product_raw(values, m, weight) : oracle_product(values, m, weight, bias);
  struct device_request request = {.weight = handle,
                                   .shape = &weight->shape,
                                   .x = x,
                                   .m = m,
                                   .y_type = y_type,
                                   .bias_type = biased ? GEMM_BF16 : GEMM_TYPE_NONE,
                                   .bias = bias_row.data,
                                   .y_extra = m % 3,
                                   .variant = &variant};
  void *first = device_run(&device, &request), *second = device_run(&device, &request);
  judge(&request, first, reference, kernel);
  assert_memory_equal(first, second, (uint64_t)(m * weight->shape.n) * gemm_type_bytes(y_type));
  products++;
  free(first);
  free(second);
  free(reference);
  free(values);
  free(bias);
  oracle_x_free(&bias_row);
}

/* INT2 lies in tiles on some devices only. */
static bool takes_two_bits(void) {
  struct variant_problem problem = {
      .weight = {.n = 256, .k = 256, .format = GEMM_FORMAT_INT2, .scale = GEMM_SCALE_GROUP},
      .m = 1,
      .x_type = GEMM_F16,
      .y_type = GEMM_F16};
  struct variant variant;
  struct error error;
  return variant_parse(device.ops->families, "tile block_m=64 block_n=64 block_k=128", &variant, &error) == STATUS_OK &&
         device.ops->variant_check(device.backend, &problem, &variant, NULL, &error) == STATUS_OK;
}

/* Whether anything can be built here. */
static void ask(void) {
  struct variant_problem problem = {.weight = shapes[0], .m = 1, .x_type = GEMM_F16, .y_type = GEMM_F16};
  struct variant variant;
  struct error error;
  why_none[0] = '\0';
  if (device.ops->variant_build == NULL)
    snprintf(why_none, sizeof why_none, "builds none");
  else if (variant_parse(device.ops->families, kernels[0].kernel, &variant, &error) != STATUS_OK ||
           device.ops->variant_check(device.backend, &problem, &variant, NULL, &error) != STATUS_OK)
    snprintf(why_none, sizeof why_none, "%s", error.text);
}

static void test_built_kernels(void **state) {
  static const int64_t rows[] = {1, 17, M_MOST};
  static const enum gemm_type y_types[] = {GEMM_F32, GEMM_F16, GEMM_BF16, GEMM_S32};
  ask();
  if (why_none[0] != '\0')
    return; /* the last line says so */
  for (int i = 0; i < COUNT(shapes) * 2; i++) {
    const struct gemm_weight *shape = &shapes[i / 2];
    bool int8 = shape->format == GEMM_FORMAT_INT8;
    /* the first time as they come, the second time as codes where the format has them, INT2 as bf16 */
    enum gemm_type codes = int8 || shape->format == GEMM_FORMAT_INT2A8 ? GEMM_INT8
                           : shape->format == GEMM_FORMAT_FP8          ? GEMM_E4M3
                           : shape->format == GEMM_FORMAT_INT2         ? GEMM_BF16
                                                                       : GEMM_TYPE_NONE;
    enum gemm_type x_type = i % 2 == 1 ? codes : shape->format == GEMM_FORMAT_BF16 ? GEMM_BF16 : GEMM_F16;
    if (x_type == GEMM_TYPE_NONE)
      continue;
    if (gemm_is_int2(shape->format) && !takes_two_bits())
      continue;
    struct oracle_weight weight;
    struct oracle_x x;
    oracle_weight_make(&weight, shape, (uint64_t)i + 1);
    oracle_x_make(&x, M_MOST, shape->k, x_type, 1, 11);
    struct backend_weight *handle = device_load(&device, &weight, 0);
    for (int kernel = 0; kernel < COUNT(kernels); kernel++)
      for (int r = 0; r < COUNT(rows); r++)
        for (int y = 0; y < COUNT(y_types); y++) {
          bool bears = !kernels[kernel].rounds || y_types[y] == GEMM_F32 || y_types[y] == GEMM_S32;
          bool steps = kernels[kernel].groups == gemm_is_int2(shape->format);
          if (bears && steps && gemm_takes_y(shape->format, x_type, y_types[y]))
            compare(&weight, handle, &x, rows[r], y_types[y], kernels[kernel].kernel,
                    (kernel + r + y) % 2 == 0 && y_types[y] != GEMM_S32);
        }
    device.ops->weight_detach(device.backend, handle);
    oracle_x_free(&x);
    oracle_weight_free(&weight);
  }
}

/* What a search compiles, its best guesses. */
static void test_swept_kernels(void **state) {
  enum { SWEPT = 4 };
  static const int64_t rows[] = {3, M_MOST};
  static const struct gemm_weight swept[] = {
      {.n = 150, .k = 1100, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW},
      {.n = 200, .k = 2070, .format = GEMM_FORMAT_FP8, .scale = GEMM_SCALE_ROW},
      {.n = 150, .k = 1100, .format = GEMM_FORMAT_BF16, .scale = GEMM_SCALE_NONE},
  };
  if (why_none[0] != '\0')
    return;
  for (int i = 0; i < COUNT(swept); i++) {
    struct oracle_weight weight;
    struct oracle_x x;
    enum gemm_type type = swept[i].format == GEMM_FORMAT_BF16 ? GEMM_BF16 : GEMM_F16;
    oracle_weight_make(&weight, &swept[i], (uint64_t)i + 1);
    oracle_x_make(&x, M_MOST, swept[i].k, type, 1, 11);
    struct backend_weight *handle = device_load(&device, &weight, 0);
    for (int r = 0; r < COUNT(rows); r++) {
      struct variant_problem problem = {
          .weight = swept[i], .m = variant_bucket(rows[r]), .x_type = type, .y_type = GEMM_F32};
      struct variant list[SWEPT];
      char text[VARIANT_TEXT_BYTES];
      int count = device.ops->compiled_variants(device.backend, &problem, false, list, SWEPT);
      assert_true(count >= 1);
      for (int v = 0; v < count; v++)
        compare(&weight, handle, &x, rows[r], GEMM_F32, variant_text(&list[v], text), v % 2 == 0);
    }
    device.ops->weight_detach(device.backend, handle);
    oracle_x_free(&x);
    oracle_weight_free(&weight);
  }
}

static int run_group(const struct backend_ops *ops) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_built_kernels), cmocka_unit_test(test_swept_kernels)};
  products = 0;
  device_group(&device, ops, SLAB_BYTES);
  int failed = cmocka_run_group_tests_name(ops->name, tests, device_group_open, device_group_close);
  print_message("%s: %d products of kernels built at run time%s%s\n", ops->name, products,
                why_none[0] != '\0' ? ": " : "", why_none);
  return failed;
}

int main(int count, char **arguments) {
  if (folder_make(NULL) != 0 || setenv("GEMMD_TEST_STATE", folder, 1) != 0)
    return 1;
  int failed = device_groups(count, arguments, run_group);
  return folder_remove(NULL) != 0 || failed;
}
