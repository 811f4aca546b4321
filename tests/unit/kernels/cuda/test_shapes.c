/* Shapes at random: whatever the models choose can be planned, fits a multiprocessor, and covers all of y. */
#include "kernels/cuda/exec/staging.h"
#include "kernels/cuda/families/few/config.h"
#include "kernels/cuda/families/sm90/fp8_many/config.h"
#include "kernels/cuda/families/sm90/hopper/config.h"
#include "kernels/cuda/families/sm90/int2/variants.h"
#include "kernels/cuda/families/sm90/many/config.h"
#include "tests/support/reference/oracle.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { SHAPES = 20000, SHARED_MOST = 227 * 1024 };
static const int multiprocessors[] = {16, 78, 114, 132, 144};
#define STAGING_BYTES ((uint64_t)512 << 20)

static uint64_t state_of_chance = 1;

static int64_t below(int64_t most) {
  return (int64_t)(oracle_random(&state_of_chance) % (uint64_t)most);
}

/* As often of each magnitude, and often at or beside a multiple of 64. */
static int64_t size_up_to(int64_t most) {
  int64_t size = (int64_t)pow((double)most, (oracle_uniform(&state_of_chance) + 1) / 2);
  if (below(2) == 0)
    size = size / 64 * 64 + below(3) - 1;
  return size < 1 ? 1 : size;
}

static int some_multiprocessors(void) {
  return multiprocessors[below((int64_t)(sizeof multiprocessors / sizeof *multiprocessors))];
}

/* As many rows as staging lets through at a time. */
static int64_t some_rows(const struct gemm_weight *weight, const struct layout *layout) {
  int64_t rows = size_up_to(ROWS_MOST), most = staging_rows(weight, layout, STAGING_BYTES);
  return most < 1 ? 1 : rows < most ? rows : most;
}

static void check_hopper(const struct kernel_problem *problem) {
  const struct hopper_config config = hopper_configure(problem);
  int64_t tiles = (problem->n + config.rows - 1) / config.rows;
  int64_t tiles_of_x = (problem->m + config.columns - 1) / config.columns;
  assert_true(hopper_config_valid(&config, problem->scale));
  assert_true(hopper_shared_bytes(&config, problem->scale) <= SHARED_MOST);
  assert_true(tiles <= INT32_MAX / tiles_of_x);
}

static void check_few(const struct kernel_problem *problem) {
  if (!few_takes(problem))
    return;
  const struct few_config config = few_configure(problem);
  assert_true(few_config_valid(&config));
  for (int64_t m = 1; m <= problem->m; m++)
    assert_true(few_shared_bytes(m, problem->k_padded) <= SHARED_MOST);
}

static void check_many(const struct kernel_problem *problem) {
  double busy;
  if (!many_takes(problem))
    return;
  const struct many_config config = many_configure(problem, &busy);
  assert_true(many_config_valid(&config));
  assert_true(many_shared_bytes(config.columns) <= SHARED_MOST);
  assert_true(busy > 0 && busy <= 1.000001);
}

static void check_divisor(const struct fp8_many_divisor *divisor, uint64_t n) {
  assert_int_equal(divisor->inverse > 0 ? n * divisor->inverse >> 32 : n, n / divisor->by);
}

/* Every tile of x has rows, and every block of a cluster a part of K. */
static void check_fp8_many(const struct kernel_problem *problem) {
  struct fp8_many_plan plan;
  double us;
  if (!fp8_many_takes(problem))
    return;
  const struct fp8_many_config config = fp8_many_configure(problem, &us);
  for (int64_t m = problem->m; m > 64; m = m * 3 / 4) { /* a bucket's kernel computes fewer rows, too */
    struct kernel_problem fewer = *problem;
    fewer.m = m;
    assert_true(fp8_many_plan_for(&config, &fewer, &plan));
    assert_in_range(plan.columns, 8, plan.width);
    assert_in_range(plan.width, FP8_MANY_COLUMNS_LEAST, config.columns);
    assert_in_range(m, (int64_t)plan.columns * (plan.x_tiles - 1) + 1, (int64_t)plan.columns * plan.x_tiles);
    assert_true((int64_t)plan.w_tiles * config.rows >= problem->n);
    assert_true(plan.steps_of_block * (plan.split_k - 1) < plan.steps);
    assert_true(plan.steps_of_block * plan.split_k >= plan.steps);
    uint64_t tiles = (uint64_t)plan.w_tiles * (uint64_t)plan.x_tiles;
    uint64_t in_group = (uint64_t)plan.w_tiles * (uint64_t)plan.group;
    check_divisor(&plan.by_group, tiles - 1);
    check_divisor(&plan.by_wide, in_group - 1);
    check_divisor(&plan.by_last, in_group - 1);
  }
}

static void test_bytes(void **state) {
  static const enum gemm_scale scales[] = {GEMM_SCALE_ONE, GEMM_SCALE_ROW, GEMM_SCALE_BLOCK};
  static const enum gemm_type y_types[] = {GEMM_F32, GEMM_F16, GEMM_BF16};
  for (int i = 0; i < SHAPES; i++) {
    bool fp8 = below(2) == 0;
    struct gemm_weight weight = {.format = fp8 ? GEMM_FORMAT_FP8 : GEMM_FORMAT_INT8,
                                 .scale = scales[below(fp8 ? 3 : 2)],
                                 .n = size_up_to(1 << 24),
                                 .k = size_up_to(131071)};
    struct layout layout;
    struct error error;
    assert_int_equal(layout_compute(&weight, LAYOUT_ROWS, &layout, &error), STATUS_OK);
    struct kernel_problem problem = {.device = {.capability = 90, .multiprocessors = some_multiprocessors()},
                                     .format = weight.format,
                                     .scale = weight.scale,
                                     .m = variant_bucket(some_rows(&weight, &layout)),
                                     .n = weight.n,
                                     .k_padded = layout.k,
                                     .y_type = y_types[below(3)],
                                     .in_row = below(2) == 0};
    check_hopper(&problem);
    check_few(&problem);
    check_many(&problem);
    check_fp8_many(&problem);
  }
}

static void test_two_bits(void **state) {
  static const enum gemm_type x_types[] = {GEMM_F16, GEMM_BF16, GEMM_F32, GEMM_INT8};
  for (int i = 0; i < SHAPES; i++) {
    bool codes = below(2) == 0;
    struct gemm_weight weight = {.format = codes ? GEMM_FORMAT_INT2A8 : GEMM_FORMAT_INT2,
                                 .scale = GEMM_SCALE_GROUP,
                                 .n = size_up_to(1 << 20),
                                 .k = size_up_to(INT2_FEW_K_MOST)};
    struct layout layout;
    struct error error;
    assert_int_equal(layout_compute(&weight, layout_choose(&weight, 90, true), &layout, &error), STATUS_OK);
    if (!layout_is_tiled(&layout))
      continue;
    struct kernel_problem problem = {.device = {.capability = 90, .multiprocessors = some_multiprocessors()},
                                     .tiled = true,
                                     .format = weight.format,
                                     .x_type = x_types[below(codes ? 4 : 3)],
                                     .y_type = x_types[below(3)],
                                     .m = some_rows(&weight, &layout),
                                     .n = weight.n,
                                     .k = weight.k};
    struct int2_few_way few[INT2_FEW_WAYS];
    struct int2a8_way bytes[INT2A8_WAYS];
    int sms = problem.device.multiprocessors;
    assert_true(codes ? int2a8_ways_find(weight.n, weight.k, sms, bytes)
                      : int2_few_ways_find(weight.n, weight.k, sms, few));
    for (int way = 0; way < (codes ? INT2A8_WAYS : INT2_FEW_WAYS); way++)
      assert_true((codes ? bytes[way].plan.shared_bytes : few[way].plan.shared_bytes) <= SHARED_MOST);
    struct variant own;
    double us = 0;
    bool offered[] = {int2_few_predict(&problem, &own, &us), int2_many_predict(&problem, &own, &us),
                      int2a8_predict(&problem, &own, &us)};
    assert_int_equal(offered[0] + offered[1] + offered[2], 1);
    assert_true(us > 0);
    assert_int_equal(int2_check(NULL, &problem, &own, NULL, &error), STATUS_OK);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bytes),
      cmocka_unit_test(test_two_bits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
