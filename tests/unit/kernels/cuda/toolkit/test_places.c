/* INT2 weights where a device's sparse matrix instructions do not take any metadata: none is stored in tiles, and none
 * that lies in tiles is taken. How many rows of a product over experts find a place at a time. All that is asked for
 * here ends before the device is. */
#include "kernels/cuda/experts/run.h"
#include "kernels/cuda/state.h"
#include "kernels/cuda/weight/weight.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct gemm_weight codes2 = {.n = 256, .k = 512, .format = GEMM_FORMAT_INT2, .scale = GEMM_SCALE_GROUP};
static const struct gemm_weight codes2a8 = {
    .n = 256, .k = 512, .format = GEMM_FORMAT_INT2A8, .scale = GEMM_SCALE_GROUP};

static struct backend hopper = {.gpu = {.capability = 90, .multiprocessors = 132}};

static uint32_t planned(const struct gemm_weight *weight, bool places) {
  struct backend_plan plan;
  struct error error;
  hopper.gpu.places = places;
  assert_int_equal(cuda_weight_plan(&hopper, weight, &plan, &error), STATUS_OK);
  return plan.layout;
}

static void test_plans(void **state) {
  assert_int_equal(planned(&codes2, true), LAYOUT_TILES2);
  assert_int_equal(planned(&codes2, false), LAYOUT_CODES2);
  assert_int_equal(planned(&codes2a8, true), LAYOUT_TILES2A8);
  assert_int_equal(planned(&codes2a8, false), LAYOUT_TILES2A8);
}

/* The slab is empty, so that a layout that is taken fails for that. */
static enum status attached(const struct gemm_weight *weight, uint32_t layout, bool places, struct error *error) {
  struct backend_slab empty = {.bytes = 0};
  struct backend_weight *none = NULL;
  hopper.gpu.places = places;
  return cuda_weight_attach(&hopper, weight, layout, &empty, 0, &none, error);
}

static void test_attaches(void **state) {
  struct error error;
  assert_int_equal(attached(&codes2, LAYOUT_TILES2, true, &error), STATUS_INVALID);
  assert_int_equal(attached(&codes2, LAYOUT_TILES2, false, &error), STATUS_UNSUPPORTED);
  assert_non_null(strstr(error.text, "sparse"));
  assert_int_equal(attached(&codes2, LAYOUT_CODES2, true, &error), STATUS_INVALID);
  assert_int_equal(attached(&codes2, LAYOUT_CODES2, false, &error), STATUS_INVALID);
  assert_int_equal(attached(&codes2a8, LAYOUT_TILES2A8, false, &error), STATUS_INVALID);
}

static struct backend_weight experts_of(int64_t n, int64_t k, enum gemm_format format, enum gemm_scale scale) {
  struct backend_weight out = {.weight = {.n = n, .k = k, .format = format, .scale = scale, .experts = 128}};
  struct error error;
  assert_int_equal(layout_compute(&out.weight, layout_choose(&out.weight, 90, true), &out.layout, &error), STATUS_OK);
  return out;
}

/* Weights are read once for 4096 rows of eight experts each in the 512 MiB that a slot has, by a layer, too. */
static void test_experts_at_a_time(void **state) {
  struct backend_weight up = experts_of(3072, 4096, GEMM_FORMAT_FP8, GEMM_SCALE_ROW);
  struct backend_weight down = experts_of(4096, 1536, GEMM_FORMAT_FP8, GEMM_SCALE_ROW);
  const struct backend_experts sums = {.top = 8, .sum = true}, all = {.top = 8};
  const struct backend_step steps[] = {
      {.weight = &up, .y_type = GEMM_BF16, .activation = GEMM_SILU, .gated = true},
      {.weight = &down, .y_type = GEMM_BF16},
  };
  const struct backend_job layer = {
      .weight = &up, .x_type = GEMM_BF16, .y_type = GEMM_BF16, .experts = &sums, .steps = steps, .step_count = 2};
  const struct backend_job product = {.weight = &up, .x_type = GEMM_BF16, .y_type = GEMM_BF16, .experts = &all};
  int64_t rows = 0;
  struct error error;
  assert_int_equal(experts_run_rows(&layer, 4096, 2 * (4096 + 4096), 512 << 20, &rows, &error), STATUS_OK);
  assert_int_equal(rows, 4096);
  assert_int_equal(experts_run_rows(&product, 4096, 2 * (4096 + 8 * 3072), 512 << 20, &rows, &error), STATUS_OK);
  assert_int_equal(rows, 4096);
}

/* What the two weights of a layer want of a lane holds all that it may be asked for, of either and of both, and seven
 * eighths of it do not. */
static void test_experts_of_a_lane(void **state) {
  enum { ROWS = 512, TOP = 8 };
  static const struct {
    enum gemm_format format;
    enum gemm_scale scale;
  } kinds[] = {{GEMM_FORMAT_INT8, GEMM_SCALE_ROW},
               {GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK},
               {GEMM_FORMAT_F16, GEMM_SCALE_NONE},
               {GEMM_FORMAT_MXFP4, GEMM_SCALE_GROUP32}};
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
    struct backend_weight up = experts_of(3072, 4096, kinds[i].format, kinds[i].scale);
    struct backend_weight down = experts_of(4096, 1536, kinds[i].format, kinds[i].scale);
    uint64_t of_up = experts_weight_bytes(&up.weight, &up.layout, ROWS * TOP);
    uint64_t of_down = experts_weight_bytes(&down.weight, &down.layout, ROWS * TOP);
    uint64_t bytes = of_up > of_down ? of_up : of_down;
    const struct backend_experts sums = {.top = TOP, .sum = true};
    const struct backend_step steps[] = {
        {.weight = &up, .y_type = GEMM_F32, .activation = GEMM_SILU, .gated = true},
        {.weight = &down, .y_type = GEMM_F32},
    };
    const struct backend_job jobs[] = {
        {.weight = &up, .x_type = GEMM_F32, .y_type = GEMM_F32, .experts = &sums, .steps = steps, .step_count = 2},
        {.weight = &up, .x_type = GEMM_F32, .y_type = GEMM_F32, .experts = &sums},
        {.weight = &down, .x_type = GEMM_F32, .y_type = GEMM_F32, .experts = &sums}};
    int64_t rows = 0;
    struct error error;
    for (int job = 0; job < 3; job++) {
      assert_int_equal(experts_run_rows(&jobs[job], ROWS, 0, bytes, &rows, &error), STATUS_OK);
      assert_int_equal(rows, ROWS);
    }
    assert_int_equal(experts_run_rows(&jobs[0], ROWS, 0, bytes - bytes / 8, &rows, &error), STATUS_OK);
    assert_in_range(rows, 1, ROWS - 1);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_plans),
      cmocka_unit_test(test_attaches),
      cmocka_unit_test(test_experts_at_a_time),
      cmocka_unit_test(test_experts_of_a_lane),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
