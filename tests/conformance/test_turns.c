/* Products a turn at a time, with others between, on every backend that has such: right, ended when they are not
 * wanted, as many as may be, and their memory given back. */
#include "kernels/backend.h"
#include "tests/support/worker/suite.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SLAB_BYTES ((uint64_t)16 << 20)
#define NS_LEAST 1 /* as many turns as there can be */

enum { ROWS = 700 };

static struct device device;

static bool has_turns(void) {
  return device.ops->turns_begin != NULL;
}

/* Every format, with a bias, rows of x and y apart; and the same as a chain of jobs is one product. */
static void test_formats(void **state) {
  if (!has_turns())
    skip();
  for (int kind = 0; kind < device_kinds(device.ops); kind++) {
    struct gemm_weight shape = {
        .n = 130, .k = 260, .format = oracle_kinds[kind].format, .scale = oracle_kinds[kind].scale};
    struct oracle_weight weight;
    struct oracle_x x;
    double *bias;
    enum gemm_type x_type = suite_x_type(shape.format, kind), y_type = suite_y_type(shape.format, x_type, kind % 3);
    bool raw = y_type == GEMM_S32;
    oracle_weight_make(&weight, &shape, 1 + (uint64_t)kind);
    oracle_x_make(&x, ROWS, shape.k, x_type, suite_scale_columns(&shape), 11);
    void *bias_data = suite_bias(shape.n, GEMM_F32, &bias);
    struct device_request request = {.weight = device_load(&device, &weight, 0),
                                     .shape = &shape,
                                     .x = &x,
                                     .m = ROWS,
                                     .y_type = y_type,
                                     .bias = raw ? NULL : bias_data,
                                     .bias_type = raw ? GEMM_TYPE_NONE : GEMM_F32,
                                     .x_extra = 8,
                                     .y_extra = 3};
    double *reference = suite_reference(&x, &weight, raw ? NULL : bias, raw);
    struct backend_job job = device_stage(&device, &request);
    assert_true(device_finish_by_turns(&device, &job, NS_LEAST) > 1);
    void *y = device_collect(&device, &request, &job);
    suite_judge(&device, &request, y, reference);
    free(y);
    free(reference);
    free(bias_data);
    free(bias);
    device.ops->weight_detach(device.backend, request.weight);
    oracle_x_free(&x);
    oracle_weight_free(&weight);
  }
}

/* W comes with the product, in more panels than one where the backend cuts it; a whole product of a weight between each
 * two turns. */
static void test_tensors(void **state) {
  enum { N = 12000, K = 24, M = 150 };
  if (!has_turns())
    skip();
  struct gemm_weight shape = {.n = N, .k = K, .format = GEMM_FORMAT_F16, .scale = GEMM_SCALE_NONE};
  struct gemm_weight other_shape = {.n = 40, .k = K, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW};
  struct oracle_weight weight, other;
  struct oracle_x x;
  struct backend_turns *turns;
  struct backend_done done;
  struct error error;
  oracle_weight_make(&weight, &shape, 3);
  oracle_weight_make(&other, &other_shape, 4);
  oracle_x_make(&x, M, K, GEMM_F16, 1, 5);
  double *reference = suite_reference(&x, &weight, NULL, false);
  struct device_request request = {.shape = &shape, .x = &x, .m = M, .y_type = GEMM_F32};
  struct backend_operand operand = {.shape = shape,
                                    .w = device_keep(&device, weight.canonical, weight.layout.codes_bytes),
                                    .stride = weight.layout.row_bytes};
  struct backend_job job = device_stage(&device, &request);
  job.operand = &operand;
  /* behind y, and of the same types */
  struct backend_job between = job;
  between.operand = NULL;
  between.weight = device_load(&device, &other, 0);
  between.m = 1;
  between.y = device_keep(&device, x.data, 40 * sizeof(float));
  between.tag = 99;
  uint64_t before = device.ops->working != NULL ? device.ops->working(device.backend) : 0;
  int count = 0;
  assert_int_equal(device.ops->turns_begin(device.backend, &job, 1, &turns, &error), STATUS_OK);
  for (bool more = true; more; count++) {
    more = device_turn(&device, turns, NS_LEAST, &done);
    device_finish(&device, &between);
  }
  assert_int_equal(done.status, STATUS_OK);
  assert_true(count > 1);
  void *y = device_collect(&device, &request, &job);
  suite_judge(&device, &request, y, reference);
  if (device.ops->rest != NULL && device.ops->working != NULL) {
    assert_true(device.ops->working(device.backend) > before);
    device.ops->rest(device.backend);
    assert_true(device.ops->working(device.backend) <= before + (1 << 20)); /* and what `between` has taken */
  }
  device.kept = 0;
  free(y);
  free(reference);
  device.ops->weight_detach(device.backend, between.weight);
  oracle_x_free(&x);
  oracle_weight_free(&other);
  oracle_weight_free(&weight);
}

/* Two products with an activation between: rows by turns are those of the whole. */
static void test_plan(void **state) {
  enum { N = 64 };
  if (!has_turns())
    skip();
  struct gemm_weight shape = {.n = N, .k = N, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW};
  struct oracle_weight weight;
  struct oracle_x x;
  oracle_weight_make(&weight, &shape, 3);
  oracle_x_make(&x, ROWS, N, GEMM_BF16, 1, 5);
  struct backend_weight *handle = device_load(&device, &weight, 0);
  struct backend_step steps[] = {{.weight = handle, .y_type = GEMM_BF16, .activation = GEMM_SILU},
                                 {.weight = handle, .y_type = GEMM_F32}};
  struct device_request request = {
      .weight = handle, .shape = &shape, .x = &x, .m = ROWS, .y_type = GEMM_F32, .steps = steps, .step_count = 2};
  float *whole = device_run(&device, &request);
  struct backend_job job = device_stage(&device, &request);
  assert_true(device_finish_by_turns(&device, &job, NS_LEAST) > 1);
  float *y = device_collect(&device, &request, &job);
  for (int row = 0; row < ROWS; row++) {
    double off = 0, size = 0;
    for (int i = row * N; i < (row + 1) * N; i++) {
      off = fmax(off, fabs((double)y[i] - (double)whole[i]));
      size = fmax(size, fabs((double)whole[i]));
    }
    assert_true(off <= size * 0x1p-6 || !isfinite(size)); /* codes of the second product may differ by one */
  }
  free(whole);
  free(y);
  device.ops->weight_detach(device.backend, handle);
  oracle_x_free(&x);
  oracle_weight_free(&weight);
}

static void test_not_wanted(void **state) {
  if (!has_turns())
    skip();
  struct gemm_weight shape = {.n = 64, .k = 64, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW};
  struct oracle_weight weight;
  struct oracle_x x;
  struct backend_turns *turns[2];
  struct backend_done done;
  struct error error;
  oracle_weight_make(&weight, &shape, 3);
  oracle_x_make(&x, ROWS, shape.k, GEMM_F16, 1, 5);
  struct device_request request = {
      .weight = device_load(&device, &weight, 0), .shape = &shape, .x = &x, .m = ROWS, .y_type = GEMM_F32};
  struct backend_job job = device_stage(&device, &request);
  assert_int_equal(device.ops->turns_begin(device.backend, &job, 1, &turns[0], &error), STATUS_OK);
  assert_int_equal(device.ops->turns_begin(device.backend, &job, 1, &turns[1], &error), STATUS_BUSY);
  assert_true(device_turn(&device, turns[0], NS_LEAST, &done));
  device.ops->turns_abandon(device.backend, turns[0]);
  assert_false(device_turn(&device, turns[0], NS_LEAST, &done));
  assert_int_equal(done.status, STATUS_CANCELLED);
  assert_true(device_finish_by_turns(&device, &job, NS_LEAST) > 1); /* there is room again */
  device.ops->weight_detach(device.backend, request.weight);
  oracle_x_free(&x);
  oracle_weight_free(&weight);
}

/* What is predicted grows with the rows, and few of them take no turns. */
static void test_predicted(void **state) {
  enum { LONG_NS = 2000000 };
  if (!has_turns())
    skip();
  struct gemm_weight shape = {.n = 2048, .k = 2048, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW};
  struct oracle_weight weight;
  oracle_weight_make(&weight, &shape, 3);
  struct backend_job job = {.weight = device_load(&device, &weight, 0),
                            .arena = device.arena,
                            .m = 1,
                            .x_type = GEMM_F16,
                            .y_type = GEMM_F16};
  uint64_t one = device.ops->predict_ns(device.backend, &job);
  assert_true(one > 0 && one < LONG_NS);
  job.m = 1 << 20;
  uint64_t many = device.ops->predict_ns(device.backend, &job);
  assert_true(many > LONG_NS);
  job.m = 1 << 21;
  assert_true(device.ops->predict_ns(device.backend, &job) > many);
  device.ops->weight_detach(device.backend, job.weight);
  oracle_weight_free(&weight);
}

/* One column of a W that comes with its product, and that is x, too: nothing is padded to 16 rows of so many bytes. */
static void test_long_rows(void **state) {
  enum { K = 5 << 20, BYTES_MOST = 48 << 20 };
  static const struct gemm_weight shape = {.n = 1, .k = K, .format = GEMM_FORMAT_F16, .scale = GEMM_SCALE_NONE};
  if (!has_turns())
    skip();
  uint16_t *x = (uint16_t *)(void *)device.base;
  for (int i = 0; i < K; i++)
    x[i] = i % 4 == 0 ? 0x3800 : 0; /* a half; squares add up to less than 2^24 quarters */
  struct backend_operand operand = {.shape = shape, .w = x, .stride = 2 * (uint64_t)K};
  struct backend_job job = {.operand = &operand,
                            .arena = device.arena,
                            .m = 1,
                            .x_type = GEMM_F16,
                            .y_type = GEMM_F32,
                            .x = x,
                            .x_stride = operand.stride,
                            .y = device.base + operand.stride,
                            .y_stride = sizeof(float)};
  if (device.ops->rest != NULL)
    device.ops->rest(device.backend);
  uint64_t before = device.ops->working != NULL ? device.ops->working(device.backend) : 0;
  assert_true(device_finish_by_turns(&device, &job, NS_LEAST) >= 1);
  if (device.ops->working != NULL)
    assert_in_range(device.ops->working(device.backend), before, before + BYTES_MOST);
  double y = *(const float *)job.y, expected = K / 4 * 0.25;
  assert_true(fabs(y - expected) <= 5e-4 * expected);
}

static int run_group(const struct backend_ops *ops) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_formats),    cmocka_unit_test(test_tensors),   cmocka_unit_test(test_plan),
      cmocka_unit_test(test_not_wanted), cmocka_unit_test(test_predicted), cmocka_unit_test(test_long_rows),
  };
  device_group(&device, ops, SLAB_BYTES);
  return cmocka_run_group_tests_name(ops->name, tests, device_group_open, device_group_close);
}

int main(int count, char **arguments) {
  return device_groups(count, arguments, run_group);
}
