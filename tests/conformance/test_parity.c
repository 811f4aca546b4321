/* One kernel launched by a backend that serves, as the worker's does, and by one that computes for its caller: the same
 * bits. What each takes for it, in the same graph of launches over the same weights, is printed and judged by whoever
 * reads it: medians of turns in the order A B B A.
 *
 * Arguments and environment as for test_conformance. */
#include "kernels/backend.h"
#include "tests/support/worker/lanes.h"
#include "tests/support/worker/suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WEIGHTS = 4, ROUNDS = 10, LAUNCHES = 32, VARIANTS = 64 }; /* fewer launches on a CPU */

static struct device owner;
static struct lanes lanes;

/* A model's layer where there is a GPU: together the weights do not fit into its cache. */
static void sizes(int64_t *n, int64_t *k) {
  *n = owner.ops->on_cores ? 384 : 28672;
  *k = owner.ops->on_cores ? 512 : 4096;
}

static uint64_t slab_bytes(const struct backend_ops *ops) {
  return (ops->on_cores ? (uint64_t)2 : (uint64_t)160) * WEIGHTS << 20;
}

/* Any codes are numbers, but for the two of e4m3 that are none. */
static struct oracle_weight random_weight(const struct gemm_weight *shape, uint64_t seed) {
  struct oracle_weight weight = {.shape = *shape};
  struct error error;
  assert_int_equal(gemm_layout_compute(shape, &weight.layout, &error), STATUS_OK);
  weight.canonical = malloc(weight.layout.total_bytes);
  assert_non_null(weight.canonical);
  for (uint64_t i = 0, state = seed; i < weight.layout.scales_offset; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    weight.canonical[i] = (uint8_t)(state >> 56) & (shape->format == GEMM_FORMAT_FP8 ? 0xb7 : 0xff);
  }
  bool half = gemm_format_facts(shape->format)->scale_type == GEMM_F16;
  uint64_t scale_bytes = half ? 2 : 4, count = weight.layout.scales_bytes / scale_bytes;
  const uint16_t half_scale = 0x2000;
  const float scale = 1.0f / 128;
  for (uint64_t i = 0; i < count; i++)
    memcpy(weight.canonical + weight.layout.scales_offset + i * scale_bytes,
           half ? (const void *)&half_scale : (const void *)&scale, scale_bytes);
  return weight;
}

static int by_size(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

static double median(double values[2 * ROUNDS]) {
  qsort(values, (size_t)2 * ROUNDS, sizeof *values, by_size);
  return (values[ROUNDS - 1] + values[ROUNDS]) / 2;
}

struct side {
  const char *name;
  struct backend *backend;
  struct backend_job job;
  struct backend_weight *weights[WEIGHTS];
  double us[2 * ROUNDS];
};

static double measured(const struct side *side, const struct variant *variant) {
  const struct backend_timing timing = {
      .launches = owner.ops->on_cores ? 2 : LAUNCHES, .quantize = true, .dependent = true};
  struct backend_job job = side->job;
  struct error error;
  uint64_t ns = 0;
  job.variant = variant;
  if (owner.ops->measure(side->backend, &job, side->weights, WEIGHTS, &timing, &ns, &error) != STATUS_OK)
    fail_msg("%s: %s", side->name, error.text);
  assert_true(ns > 0);
  return (double)ns / 1e3;
}

/* x and y of the direct side as an engine has them, in memory that begins where the device likes best. */
static void take_tensors(struct side *side, const struct oracle_x *x) {
  uint64_t x_bytes = (uint64_t)(x->m * x->k) * 2, y_bytes = side->job.y_stride * (uint64_t)x->m;
  void *tensors[2] = {NULL, NULL};
  struct error error;
  if (owner.ops->tensor_take(side->backend, x_bytes, &tensors[0], &error) != STATUS_OK ||
      owner.ops->tensor_take(side->backend, y_bytes, &tensors[1], &error) != STATUS_OK ||
      owner.ops->tensor_copy(side->backend, tensors[0], x->data, x_bytes, &error) != STATUS_OK)
    fail_msg("%s", error.text);
  side->job.x = tensors[0];
  side->job.y = tensors[1];
}

static void compare_times(struct side sides[2], const struct variant *variant, const struct variant_problem *problem) {
  char shape[VARIANT_TEXT_BYTES], kernel[VARIANT_TEXT_BYTES];
  for (int side = 0; side < 2; side++)
    (void)measured(&sides[side], variant);
  for (int round = 0; round < ROUNDS; round++)
    for (int turn = 0; turn < 4; turn++) {
      struct side *side = &sides[turn == 1 || turn == 2];
      side->us[2 * round + turn / 2] = measured(side, variant);
    }
  double served = median(sides[0].us), direct = median(sides[1].us);
  printf("%s %s: served %.2f us, direct %.2f us, direct/served %.4f\n", variant_problem_text(problem, shape),
         variant_text(variant, kernel), served, direct, direct / served);
}

static void one(struct side sides[2], const struct gemm_weight *shape, int64_t m) {
  const struct variant_problem problem = {.weight = *shape, .m = m, .x_type = GEMM_BF16, .y_type = GEMM_BF16};
  struct variant variants[VARIANTS];
  struct oracle_x x;
  struct error error;
  assert_true(owner.ops->variants(owner.backend, &problem, NULL, false, variants, VARIANTS) > 0);
  struct variant here = variants[0], there = variants[0];
  if (owner.ops->variant_check(owner.backend, &problem, &here, NULL, &error) != STATUS_OK ||
      owner.ops->variant_check(lanes.device.backend, &problem, &there, NULL, &error) != STATUS_OK)
    fail_msg("%s", error.text);
  oracle_x_make(&x, m, shape->k, GEMM_BF16, 1, 3);
  struct device_request request = {.shape = shape, .x = &x, .m = m, .y_type = GEMM_BF16};
  request.weight = sides[0].weights[0];
  request.variant = &here;
  void *served = device_run(&owner, &request);
  sides[0].job = device_stage(&owner, &request);
  request.weight = sides[1].weights[0];
  request.variant = &there;
  void *direct = lanes_run(&lanes, 0, &request);
  assert_memory_equal(served, direct, (size_t)(m * shape->n) * 2);
  sides[1].job = lanes_stage(&lanes, 0, &request);
  take_tensors(&sides[1], &x);
  compare_times(sides, &here, &problem);
  owner.ops->tensor_give(lanes.device.backend, (void *)(uintptr_t)sides[1].job.x);
  owner.ops->tensor_give(lanes.device.backend, sides[1].job.y);
  free(served);
  free(direct);
  oracle_x_free(&x);
}

static void test_same_kernel(void **state) {
  static const enum gemm_format formats[] = {GEMM_FORMAT_FP8, GEMM_FORMAT_INT8, GEMM_FORMAT_INT2};
  static const int64_t rows[] = {1, 16, 64};
  for (int i = 0; i < 3; i++) {
    struct side sides[2] = {{.name = "served", .backend = owner.backend},
                            {.name = "direct", .backend = lanes.device.backend}};
    struct gemm_weight shape = {.format = formats[i], .scale = gemm_format_facts(formats[i])->scale_default};
    sizes(&shape.n, &shape.k);
    for (int w = 0; w < WEIGHTS; w++) {
      struct oracle_weight weight = random_weight(&shape, (uint64_t)w);
      uint64_t at = slab_bytes(owner.ops) / WEIGHTS * (uint64_t)w;
      sides[0].weights[w] = device_load(&owner, &weight, at);
      sides[1].weights[w] = lanes_attach(&lanes, &weight, at);
      free(weight.canonical);
    }
    for (int m = 0; m < 3; m++)
      one(sides, &shape, rows[m]);
    for (int w = 0; w < WEIGHTS; w++) {
      owner.ops->weight_detach(lanes.device.backend, sides[1].weights[w]);
      owner.ops->weight_detach(owner.backend, sides[0].weights[w]);
    }
  }
}

static int open_both(void **state) {
  return device_group_open(state) == 0 && lanes_open(&lanes, &owner, 1, 64) ? 0 : -1;
}

static int close_both(void **state) {
  lanes_close(&lanes);
  return device_group_close(state);
}

static int group(const struct backend_ops *ops) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_kernel)};
  if (ops->enqueue == NULL || ops->measure == NULL)
    return 0;
  device_group(&owner, ops, slab_bytes(ops));
  return cmocka_run_group_tests_name(ops->name, tests, open_both, close_both);
}

int main(int count, char **arguments) {
  return device_groups(count, arguments, group);
}
