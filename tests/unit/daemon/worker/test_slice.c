/* Which rows of a long product are next, and where they lie, on a device that only writes down what it is given. */
#include "daemon/worker/engine.h"
#include "daemon/worker/plans.h"
#include "daemon/worker/slice.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct backend_job given;
static enum status answer;

static enum status submit(struct backend *backend, const struct backend_job *job, struct error *error) {
  (void)backend;
  given = *job;
  return answer == STATUS_OK || answer == STATUS_INTERNAL ? STATUS_OK : error_set(error, answer, "no");
}

static int poll_once(struct backend *backend, struct backend_done *done, int most) {
  (void)backend;
  (void)most;
  *done = (struct backend_done){.tag = given.tag, .status = answer, .device_ns = 7};
  return 1;
}

static const struct backend_ops device = {.submit = submit, .poll = poll_once, .slice_terms = 1 << 20};
static struct engine_weight square = {.shape = {.n = 64, .k = 64, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW}},
                            blocks = {
                                .shape = {.n = 32, .k = 300, .format = GEMM_FORMAT_FP8, .scale = GEMM_SCALE_BLOCK}};

static int64_t rows_of(struct queue_job *job, int64_t m) {
  job->product.m = m;
  return slice_rows(&device, job);
}

static void as_many_rows_as_take_so_long(void **state) {
  (void)state;
  struct queue_job job = {.weight = &square}; /* 2^12 a row: 256 rows */
  assert_int_equal(rows_of(&job, 1), 1);
  assert_int_equal(rows_of(&job, 319), 319);
  assert_int_equal(rows_of(&job, 320), 256);
  assert_int_equal(rows_of(&job, 100000), 256);
  struct engine_plan plan = {.weights = {&square, &square, &square, &square}, .count = 4};
  job.plan = &plan;
  assert_int_equal(rows_of(&job, 127), 127);
  assert_int_equal(rows_of(&job, 128), 64);
  square.shape.n = square.shape.k = 65536; /* one row is too much: W is not read for less than 64 */
  assert_int_equal(rows_of(&job, 100000), 64);
  square.shape.n = square.shape.k = 64;
}

static void other_devices_have_no_slices(void **state) {
  (void)state;
  struct queue_job job = {.weight = &square};
  struct backend_ops whole = device;
  whole.slice_terms = 0;
  job.product.m = 100000;
  assert_int_equal(slice_rows(&whole, &job), 100000);
}

/* Their W is laid out for every slice: these have more rows. */
static void tensors_have_fewer_slices(void **state) {
  (void)state;
  struct queue_job job = {.operand.shape = {.n = 64, .k = 64, .format = GEMM_FORMAT_F16}};
  job.product.operand = &job.operand; /* 2^12 a row */
  assert_int_equal(rows_of(&job, 2047), 2047);
  assert_int_equal(rows_of(&job, 2048), 1024);
  job.operand.shape.n = 4; /* 2^8 a row: 4096 rows */
  assert_int_equal(rows_of(&job, 5119), 5119);
  assert_int_equal(rows_of(&job, 5120), 4096);
  job.operand.shape.n = job.operand.shape.k = 1 << 24;
  assert_int_equal(rows_of(&job, 100000), 1024);
}

/* [300] of E4M3 with scales for each 128 of K, and y of f32, each row with a gap behind it. */
static void the_rest_lies_behind(void **state) {
  (void)state;
  static uint8_t x[200][320], y[200][160];
  static float scales[200][3];
  struct backend_job mate = {.m = 1};
  struct queue_job job = {.weight = &blocks,
                          .product = {.tag = 5,
                                      .m = 200,
                                      .next = &mate,
                                      .x = x,
                                      .y = y,
                                      .x_scale = scales,
                                      .x_stride = sizeof *x,
                                      .y_stride = sizeof *y}};
  struct backend_done done;
  struct error error;
  answer = STATUS_OK;
  assert_int_equal(slice_run(&device, NULL, &job, 64, &done, &error), STATUS_OK);
  assert_int_equal(given.m, 64);
  assert_null(given.next);
  assert_ptr_equal(given.x, x);
  assert_int_equal(done.device_ns, 7);
  assert_ptr_equal(job.product.x, x[64]);
  assert_ptr_equal(job.product.y, y[64]);
  assert_ptr_equal(job.product.x_scale, scales[64]);
  struct engine_plan plan = {.weights = {&square, &blocks}, .count = 2};
  job.plan = &plan; /* x and its scales are of the first weight */
  assert_int_equal(slice_run(&device, NULL, &job, 10, &done, &error), STATUS_OK);
  assert_ptr_equal(given.x, x[64]);
  assert_ptr_equal(job.product.x, x[74]);
  assert_ptr_equal(job.product.x_scale, (float *)scales[64] + 10);
}

static void a_failure_leaves_it_where_it_was(void **state) {
  (void)state;
  static const enum status failures[] = {STATUS_BUSY, STATUS_NOMEM, STATUS_INTERNAL};
  uint8_t x[4], y[4];
  struct queue_job job = {.weight = &square, .product = {.m = 1000, .x = x, .y = y, .x_stride = 1, .y_stride = 1}};
  for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
    struct backend_done done;
    struct error error;
    answer = failures[i];
    assert_int_equal(slice_run(&device, NULL, &job, 64, &done, &error), failures[i]);
    assert_ptr_equal(job.product.x, x);
    assert_ptr_equal(job.product.y, y);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(as_many_rows_as_take_so_long),     cmocka_unit_test(other_devices_have_no_slices),
      cmocka_unit_test(tensors_have_fewer_slices),        cmocka_unit_test(the_rest_lies_behind),
      cmocka_unit_test(a_failure_leaves_it_where_it_was),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
