/* What every backend must compute, asked of every backend that has a device here: every type, every size, several jobs
 * at once, and the numbers at their edges, by the kernel that the backend chooses; test_variants asks the others.
 *
 * `test_conformance cpu` (or GEMMD_TEST_BACKEND=cpu) asks one backend, and fails where it has no device. The last lines
 * are a table of the worst row's relative error that was seen, by backend, format and type of y. */
#include "kernels/backend.h"
#include "kernels/cpu/micro/micro.h"
#include "tests/support/worker/suite.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define SLAB_BYTES ((uint64_t)8 << 20)

static const enum gemm_type bias_types[] = {GEMM_TYPE_NONE, GEMM_F32, GEMM_F16, GEMM_BF16};

static struct device device; /* of the group that runs */

/* ---- every type */

static void one_type(const struct oracle_weight *weight, struct device_request *request, enum gemm_type bias_type) {
  double *bias = NULL;
  void *bias_data = bias_type != GEMM_TYPE_NONE ? suite_bias(weight->shape.n, bias_type, &bias) : NULL;
  request->bias_type = bias_type;
  request->bias = bias_data;
  double *reference = suite_reference(request->x, weight, bias, request->y_type == GEMM_S32);
  suite_expect(&device, request, reference);
  free(reference);
  free(bias_data);
  free(bias);
}

static void test_types(void **state) {
  for (int kind = 0; kind < device_kinds(device.ops); kind++) {
    struct gemm_weight shape = {
        .n = 129, .k = 260, .format = oracle_kinds[kind].format, .scale = oracle_kinds[kind].scale};
    struct oracle_weight weight;
    oracle_weight_make(&weight, &shape, 1 + (uint64_t)kind);
    struct backend_weight *handle = device_load(&device, &weight, 0);
    for (int x_type = GEMM_F32; x_type < SUITE_TYPES; x_type++) {
      if (!gemm_takes_x(shape.format, (enum gemm_type)x_type)) {
        continue;
      }
      struct oracle_x x;
      oracle_x_make(&x, 17, shape.k, (enum gemm_type)x_type, suite_scale_columns(&shape), 5);
      for (int i = 0; i < SUITE_TYPES * COUNT(bias_types); i++) {
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
  double *reference = suite_reference(request.x, weight, NULL, true);
  request.y_type = GEMM_S32;
  suite_expect(&device, &request, reference);
  free(reference);
}

static void test_ragged_m(void **state) {
  for (int kind = 0; kind < device_kinds(device.ops); kind++) {
    struct gemm_weight shape = {
        .n = 66, .k = 300, .format = oracle_kinds[kind].format, .scale = oracle_kinds[kind].scale};
    struct oracle_weight weight;
    oracle_weight_make(&weight, &shape, 20 + (uint64_t)kind);
    struct backend_weight *handle = device_load(&device, &weight, 0);
    for (int x_index = 0; x_index < 4; x_index++) {
      enum gemm_type x_type = suite_x_type(shape.format, x_index);
      struct oracle_x x;
      oracle_x_make(&x, 1024, shape.k, x_type, suite_scale_columns(&shape), 9 + (uint64_t)x_index);
      double *reference = suite_reference(&x, &weight, NULL, false);
      for (int m = x_index; m < 72; m += 4) {
        struct device_request request = {.weight = handle, .shape = &shape, .x = &x, .m = m > 67 ? 1024 : m};
        request.y_type = suite_y_type(shape.format, x_type, m / 4 % 3);
        if (m > 0) {
          suite_expect(&device, &request, reference);
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

/* Rows of which all kernels take the numbers as they are: those that are tiny or huge become the rows four above them,
 * turned round. */
static void make_usual_x(struct oracle_x *x, int64_t m, int64_t k, enum gemm_type type, uint64_t seed) {
  oracle_x_make(x, m, k, type, 0, seed);
  for (int64_t i = 0; i < m * k; i++) {
    int64_t row = i / k;
    if (row % ORACLE_ROW_KINDS == ORACLE_ROW_TINY || row % ORACLE_ROW_KINDS == ORACLE_ROW_HUGE)
      oracle_x_set(x, row, i % k, (float)oracle_element(x->data, (row - 3) * k - 1 - i % k, type));
  }
}

/* INT2: few rows and not so few, where no row of x wants another way through the kernels than its neighbours. */
static void test_usual_rows(void **state) {
  static const int64_t ms[] = {1, 8, 9, 16, 17, 32, 33};
  static const struct gemm_weight shapes[] = {
      {.n = 257, .k = 1000, .format = GEMM_FORMAT_INT2, .scale = GEMM_SCALE_ROW},
      {.n = 700, .k = 384, .format = GEMM_FORMAT_INT2, .scale = GEMM_SCALE_GROUP}};
  for (int i = 0; i < COUNT(shapes) * 2; i++) {
    struct oracle_weight weight;
    struct oracle_x x;
    enum gemm_type x_type = i % 2 ? GEMM_BF16 : GEMM_F16;
    oracle_weight_make(&weight, &shapes[i / 2], 80);
    make_usual_x(&x, ms[COUNT(ms) - 1], weight.shape.k, x_type, 81);
    struct backend_weight *handle = device_load(&device, &weight, 0);
    double *reference = suite_reference(&x, &weight, NULL, false);
    for (int j = 0; j < COUNT(ms) * 3; j++) {
      struct device_request request = {.weight = handle,
                                       .shape = &weight.shape,
                                       .x = &x,
                                       .m = ms[j / 3],
                                       .y_type = (enum gemm_type)(GEMM_F32 + j % 3),
                                       .x_extra = j % 5,
                                       .y_extra = j % 4};
      suite_expect(&device, &request, reference);
      void *chain = device_run_chain(&device, &request, 3);
      suite_judge(&device, &request, chain, reference);
      free(chain);
    }
    free(reference);
    device.ops->weight_detach(device.backend, handle);
    oracle_x_free(&x);
    oracle_weight_free(&weight);
  }
}

/* INT2: rows of y so short that errors of single elements show. */
static void test_short_y(void **state) {
  static const int64_t ms[] = {1, 6, 20}, ns[] = {1, 2, 3, 5, 8, 30};
  for (int i = 0; i < COUNT(ns) * 2; i++) {
    struct gemm_weight shape = {.n = ns[i / 2], .k = 300, .format = GEMM_FORMAT_INT2, .scale = GEMM_SCALE_GROUP};
    struct oracle_weight weight;
    struct oracle_x x;
    oracle_weight_make(&weight, &shape, 90 + (uint64_t)i);
    make_usual_x(&x, ms[COUNT(ms) - 1], shape.k, i % 2 ? GEMM_BF16 : GEMM_F16, 91);
    struct backend_weight *handle = device_load(&device, &weight, 0);
    double *reference = suite_reference(&x, &weight, NULL, false);
    for (int j = 0; j < COUNT(ms) * 3; j++) {
      struct device_request request = {
          .weight = handle, .shape = &shape, .x = &x, .m = ms[j / 3], .y_type = (enum gemm_type)(GEMM_F32 + j % 3)};
      suite_expect(&device, &request, reference);
    }
    free(reference);
    device.ops->weight_detach(device.backend, handle);
    oracle_x_free(&x);
    oracle_weight_free(&weight);
  }
}

/* Scales from the least that f16 has to those twice which it has not; or, in some places, what f16 has besides. */
static void make_scales(struct oracle_weight *weight, int kind) {
  static const uint16_t besides[] = {0x0000, 0x8000, 0x0001, 0x7800, 0xfbff, 0x7c00, 0x7e00};
  uint16_t *scales = (uint16_t *)(weight->canonical + weight->layout.scales_offset);
  for (uint64_t i = 0; kind == 2 && i < weight->layout.scale_count; i += 29)
    scales[i] = besides[i / 29 % COUNT(besides)];
  oracle_weight_multiply(weight, kind == 0 ? 2e-6 : kind == 1 ? 5e5 : 1);
}

/* Products of so many rows and less with y of the types from `first` to `last`. */
static void expect_y_types(const struct oracle_weight *weight, const struct oracle_x *x, int64_t most,
                           enum gemm_type first, enum gemm_type last) {
  static const int64_t ms[] = {1, 9, 20, 32, 33, 70, 131};
  struct backend_weight *handle = device_load(&device, weight, 0);
  double *reference = suite_reference(x, weight, NULL, false);
  for (int i = 0; i < COUNT(ms) && ms[i] <= most; i++)
    for (enum gemm_type type = first; type <= last; type++) {
      struct device_request request = {.weight = handle, .shape = &weight->shape, .x = x, .m = ms[i], .y_type = type};
      suite_expect(&device, &request, reference);
    }
  free(reference);
  device.ops->weight_detach(device.backend, handle);
}

/* With large scales, y of 16 bits is of x so small that y has it: else what is left of a row is where sums cancel. And
 * rows are long enough that those few that have the largest scales are not too few for errors to average out. */
static void test_scales_at_the_ends(void **state) {
  enum { ROWS = 131, KINDS = 3 };
  static const enum gemm_type x_types[] = {GEMM_F16, GEMM_BF16, GEMM_F32};
  for (int i = 0; i < KINDS * COUNT(x_types); i++) {
    int kind = i / COUNT(x_types);
    enum gemm_type x_type = x_types[i % COUNT(x_types)];
    struct gemm_weight shape = {
        .n = kind == 2 ? 3000 : 700, .k = 300, .format = GEMM_FORMAT_INT2, .scale = GEMM_SCALE_GROUP};
    struct oracle_weight weight;
    struct oracle_x x, small;
    oracle_weight_make(&weight, &shape, 70);
    make_scales(&weight, kind);
    oracle_x_make(&x, ROWS, shape.k, x_type, 0, 71);
    expect_y_types(&weight, &x, ROWS, GEMM_F32, kind == 0 ? GEMM_BF16 : GEMM_F32);
    if (kind > 0) {
      make_usual_x(&small, ROWS, shape.k, x_type, 72);
      for (int64_t j = 0; j < ROWS * shape.k; j++)
        oracle_x_set(&small, j / shape.k, j % shape.k, (float)ldexp(oracle_element(small.data, j, x_type), -13));
      expect_y_types(&weight, &small, ROWS, GEMM_F16, GEMM_BF16);
      oracle_x_free(&small);
    }
    oracle_x_free(&x);
    oracle_weight_free(&weight);
  }
}

/* Rows of NVFP4 whose factor is as small as e4m3 scales are large, by x so large that its products with these, before
 * the factor, add up to more than f32 has. */
static void test_small_factors(void **state) {
  static const enum gemm_type x_types[] = {GEMM_BF16, GEMM_F32};
  for (int i = 0; i < COUNT(x_types); i++) {
    struct gemm_weight shape = {.n = 200, .k = 300, .format = GEMM_FORMAT_NVFP4, .scale = GEMM_SCALE_GROUP16_FACTORS};
    struct oracle_weight weight;
    struct oracle_x x;
    oracle_weight_make(&weight, &shape, 73);
    float *factors = (float *)(void *)(weight.canonical + weight.layout.factors_offset);
    for (int64_t n = 0; n < shape.n; n++)
      factors[n] = 0x1p-12f;
    oracle_weight_multiply(&weight, 128);
    make_usual_x(&x, 33, shape.k, x_types[i], 74);
    for (int64_t j = 0; j < x.m * x.k; j++)
      oracle_x_set(&x, j / x.k, j % x.k, (float)ldexp(oracle_element(x.data, j, x.type), 121));
    expect_y_types(&weight, &x, x.m, GEMM_F32, GEMM_F32);
    expect_y_types(&weight, &x, x.m, GEMM_BF16, GEMM_BF16);
    oracle_x_free(&x);
    oracle_weight_free(&weight);
  }
}

static void one_size(const struct gemm_weight *shape, int sample) {
  static const int64_t ms[] = {1, 5, 33};
  struct oracle_weight weight;
  struct oracle_x x;
  enum gemm_type x_type = suite_x_type(shape->format, sample);
  oracle_weight_make(&weight, shape, (uint64_t)(shape->n * 131 + shape->k));
  oracle_x_make(&x, 33, shape->k, x_type, suite_scale_columns(shape), (uint64_t)sample);
  struct backend_weight *handle = device_load(&device, &weight, 0);
  double *reference = suite_reference(&x, &weight, NULL, false);
  for (int i = 0; i < COUNT(ms); i++) {
    struct device_request request = {
        .weight = handle, .shape = shape, .x = &x, .m = ms[i], .x_extra = sample % 5, .y_extra = sample % 7};
    request.y_type = suite_y_type(shape->format, x_type, (sample + i) % 3);
    suite_expect(&device, &request, reference);
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
  for (int i = 0; i < device_kinds(device.ops) * COUNT(ns) * COUNT(ks); i += DEVICE_EVERY) {
    int kind = i / (COUNT(ns) * COUNT(ks));
    struct gemm_weight shape = {.n = ns[i / COUNT(ks) % COUNT(ns)],
                                .k = ks[i % COUNT(ks)],
                                .format = oracle_kinds[kind].format,
                                .scale = oracle_kinds[kind].scale};
    one_size(&shape, i);
  }
}

static void test_long_k(void **state) {
  for (int kind = 0; kind < device_kinds(device.ops); kind++) {
    struct gemm_weight shape = {
        .n = 5, .k = 131071, .format = oracle_kinds[kind].format, .scale = oracle_kinds[kind].scale};
    for (int sample = kind % DEVICE_EVERY % 4; sample < 4; sample += DEVICE_EVERY) {
      one_size(&shape, sample);
    }
  }
}

/* The largest sum that s32 must hold, and its negative. */
static void test_int8_extremes(void **state) {
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
                                     .y_type = suite_y_type(weight->shape.format, x->type, (sample + i) % 3),
                                     .x_extra = (sample + i) % 3,
                                     .y_extra = (sample + i) % 4};
    suite_expect(&device, &request, reference);
    void *first = device_run_chain(&device, &request, 3), *second = device_run_chain(&device, &request, 3);
    suite_judge(&device, &request, first, reference);
    assert_memory_equal(first, second, (uint64_t)(request.m * weight->shape.n) * gemm_type_bytes(request.y_type));
    free(first);
    free(second);
  }
}

static void test_chains(void **state) {
  for (int kind = 0; kind < device_kinds(device.ops); kind++) {
    struct gemm_weight shape = {
        .n = 132, .k = 516, .format = oracle_kinds[kind].format, .scale = oracle_kinds[kind].scale};
    struct oracle_weight weight;
    oracle_weight_make(&weight, &shape, 40 + (uint64_t)kind);
    struct backend_weight *handle = device_load(&device, &weight, 0);
    for (int x_index = 0; x_index < 4; x_index++) {
      struct oracle_x x;
      oracle_x_make(&x, 150, shape.k, suite_x_type(shape.format, x_index), suite_scale_columns(&shape), 6);
      double *reference = suite_reference(&x, &weight, NULL, false);
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
  for (int kind = 0; kind < device_kinds(device.ops) * 3; kind++) {
    struct gemm_weight shape = {
        .n = 300, .k = 300, .format = oracle_kinds[kind / 3].format, .scale = oracle_kinds[kind / 3].scale};
    if (gemm_quantizes_x(shape.format)) {
      check_codes(&shape, (enum gemm_type)(GEMM_F32 + kind % 3));
    }
  }
}

/* One element of row 7 that is not finite spoils that row and no other's bits. */
static void check_non_finite(const struct gemm_weight *shape, struct oracle_x *x, enum gemm_type y_type, float value) {
  struct oracle_weight weight;
  oracle_weight_make(&weight, shape, 31);
  struct device_request request = {
      .weight = device_load(&device, &weight, 0), .shape = shape, .x = x, .m = x->m, .y_type = y_type};
  uint64_t row_bytes = (uint64_t)shape->n * gemm_type_bytes(y_type);
  float before = (float)oracle_element(x->data, 7 * x->k + 150, x->type);
  uint8_t *clean = device_run(&device, &request);
  oracle_x_set(x, 7, 150, value);
  uint8_t *spoilt = device_run(&device, &request);
  oracle_x_set(x, 7, 150, before);
  for (int64_t row = 0; row < x->m; row++) {
    if (row != 7 && memcmp(clean + (uint64_t)row * row_bytes, spoilt + (uint64_t)row * row_bytes, row_bytes) != 0) {
      fail_msg("%s %s x %s y %s M %lld: %g in row 7 of x changed row %lld of y", gemm_format_name(shape->format),
               gemm_scale_name(shape->scale), gemm_type_name(x->type), gemm_type_name(y_type), (long long)x->m,
               (double)value, (long long)row);
    }
  }
  for (int64_t n = 0; n < shape->n; n++) {
    double y = oracle_element(spoilt, 7 * shape->n + n, y_type);
    if (gemm_quantizes_x(shape->format) ? !isnan(y) : isfinite(y)) {
      fail_msg("%s %s x %s y %s M %lld: %g in x made %g", gemm_format_name(shape->format),
               gemm_scale_name(shape->scale), gemm_type_name(x->type), gemm_type_name(y_type), (long long)x->m,
               (double)value, y);
    }
  }
  free(clean);
  free(spoilt);
  device.ops->weight_detach(device.backend, request.weight);
  oracle_weight_free(&weight);
}

static void test_non_finite(void **state) {
  for (int i = 0; i < device_kinds(device.ops) * 9; i++) {
    struct gemm_weight shape = {
        .n = 131, .k = 400, .format = oracle_kinds[i / 9].format, .scale = oracle_kinds[i / 9].scale};
    enum gemm_type x_type = (enum gemm_type)(GEMM_F32 + i / 3 % 3), y_type = (enum gemm_type)(GEMM_F32 + i % 3);
    struct oracle_x x;
    if (gemm_takes_x(shape.format, x_type)) {
      oracle_x_make(&x, 9, shape.k, x_type, suite_scale_columns(&shape), 32);
      check_non_finite(&shape, &x, y_type, NAN);
      check_non_finite(&shape, &x, y_type, -INFINITY);
      oracle_x_free(&x);
    }
    if (shape.format == GEMM_FORMAT_FP8 && i % 9 == 0) {
      oracle_x_make(&x, 9, shape.k, GEMM_E4M3, suite_scale_columns(&shape), 32);
      check_non_finite(&shape, &x, y_type, NAN);
      oracle_x_free(&x);
    }
  }
}

/* The same of INT2 among rows none of which has numbers that a kernel has to scale. */
static void test_non_finite_among_usual(void **state) {
  static const int64_t ms[] = {8, 9, 20, 32};
  struct gemm_weight shape = {.n = 900, .k = 400, .format = GEMM_FORMAT_INT2, .scale = GEMM_SCALE_GROUP};
  for (int i = 0; i < COUNT(ms) * 9; i++) {
    struct oracle_x x;
    make_usual_x(&x, ms[i / 9], shape.k, (enum gemm_type)(GEMM_F32 + i / 3 % 3), 33);
    oracle_x_set(&x, 3, 151, 20000); /* f16 might not have the sums, but does */
    check_non_finite(&shape, &x, (enum gemm_type)(GEMM_F32 + i % 3), NAN);
    check_non_finite(&shape, &x, (enum gemm_type)(GEMM_F32 + i % 3), INFINITY);
    oracle_x_free(&x);
  }
}

/* ---- groups */

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
      cmocka_unit_test(test_types),
      cmocka_unit_test(test_ragged_m),
      cmocka_unit_test(test_ragged_n_k),
      cmocka_unit_test(test_long_k),
      cmocka_unit_test(test_int8_extremes),
      cmocka_unit_test(test_codes),
      cmocka_unit_test(test_non_finite),
      cmocka_unit_test(test_chains),
      cmocka_unit_test(test_scales_at_the_ends),
      cmocka_unit_test(test_small_factors),
      cmocka_unit_test(test_usual_rows),
      cmocka_unit_test(test_short_y),
      cmocka_unit_test(test_non_finite_among_usual),
  };
  device_group(&device, ops, SLAB_BYTES);
  int failed = cmocka_run_group_tests_name(ops->name, tests, device_group_open, device_group_close);
  bool sets = strcmp(ops->name, "cpu") == 0 && getenv("GEMMD_CPU") == NULL;
  return failed + (sets ? run_instruction_sets() : 0);
}

int main(int count, char **arguments) {
  int failed = device_groups(count, arguments, run_group);
  suite_table();
  return failed;
}
