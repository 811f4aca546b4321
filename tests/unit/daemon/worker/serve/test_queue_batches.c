/* The worker's queue: what is gathered into one product. */
#include "tests/support/worker/queue_lanes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void rows_of_several_sessions_go_together(void **state) {
  (void)state;
  struct queue_lanes rig;
  queue_lanes_open(&rig);
  queue_lanes_push_rows(&rig, 0, 1, RING_PRIORITY_NORMAL, 2);
  queue_lanes_push_rows(&rig, 1, 2, RING_PRIORITY_NORMAL, 3);
  queue_lanes_push_rows(&rig, 2, 3, RING_PRIORITY_BACKGROUND, 3);
  queue_lanes_push_rows(&rig, 2, 4, RING_PRIORITY_NORMAL, 1);
  queue_lanes_expect_batch(&rig, 0, (const uint64_t[]){1, 2, 3}, 3, 8);
  queue_lanes_expect_batch(&rig, 0, (const uint64_t[]){4}, 1, 1);
  assert_int_equal(rig.groups[0].waiting, 0);
  assert_int_equal(rig.groups[0].rows, 0);
  assert_null(queue_front(&rig.queue));
  queue_lanes_close(&rig);
}

static void what_differs_goes_apart(void **state) {
  (void)state;
  struct queue_lanes rig;
  queue_lanes_open(&rig);
  static const float bias = 1;
  queue_lanes_push(&rig, 0, 1);
  queue_lanes_push(&rig, 0, 2);
  queue_lanes_push(&rig, 0, 3);
  struct queue_job *biased = queue_find(&rig.lane[0], 2), *narrow = queue_find(&rig.lane[0], 3);
  biased->product.bias = &bias;
  narrow->product.y_type = GEMM_F16;
  struct queue_job *other = queue_reserve(&rig.lane[1]); /* of another weight */
  other->tag = 4;
  other->priority = RING_PRIORITY_NORMAL;
  other->deadline_ns = 0;
  other->product = (struct backend_job){.m = 1, .x_type = GEMM_F16, .y_type = GEMM_F32};
  queue_push(&rig.queue, other, &rig.groups[1]);
  queue_lanes_push(&rig, 2, 5);
  queue_lanes_expect_batch(&rig, 0, (const uint64_t[]){1, 5}, 2, 2);
  queue_lanes_expect_batch(&rig, 0, (const uint64_t[]){4}, 1, 1);
  queue_lanes_expect_batch(&rig, 0, (const uint64_t[]){2}, 1, 1);
  queue_lanes_expect_batch(&rig, 0, (const uint64_t[]){3}, 1, 1);
  queue_lanes_close(&rig);
}

/* A bias that lies in one place is one bias. */
static void the_same_bias_goes_together(void **state) {
  (void)state;
  struct queue_lanes rig;
  queue_lanes_open(&rig);
  static const float biases[2] = {1, 2};
  for (uint64_t tag = 1; tag <= 5; tag++) {
    queue_lanes_push(&rig, tag / 4, tag);
    struct queue_job *job = queue_find(&rig.lane[tag / 4], tag);
    job->product.bias = &biases[tag % 2];
    job->product.bias_type = tag == 5 ? GEMM_F16 : GEMM_F32;
  }
  queue_lanes_expect_batch(&rig, 0, (const uint64_t[]){1, 3}, 2, 2);
  queue_lanes_expect_batch(&rig, 0, (const uint64_t[]){4, 2}, 2, 2);
  queue_lanes_expect_batch(&rig, 0, (const uint64_t[]){5}, 1, 1);
  queue_lanes_close(&rig);
}

static void a_large_job_goes_alone(void **state) {
  (void)state;
  struct queue_lanes rig;
  queue_lanes_open(&rig);
  queue_lanes_push_rows(&rig, 0, 1, RING_PRIORITY_NORMAL, QUEUE_LANES_ROWS + 1);
  queue_lanes_push(&rig, 1, 2);
  queue_lanes_push(&rig, 2, 3);
  queue_lanes_expect_batch(&rig, 0, (const uint64_t[]){1}, 1, QUEUE_LANES_ROWS + 1);
  queue_lanes_expect_batch(&rig, 0, (const uint64_t[]){2, 3}, 2, 2);
  queue_lanes_close(&rig);
}

static void a_batch_is_shared_out_evenly(void **state) {
  (void)state;
  struct queue_lanes rig;
  queue_lanes_open(&rig);
  for (uint64_t tag = 1; tag <= QUEUE_LANES_SLOTS; tag++)
    queue_lanes_push_rows(&rig, 0, tag, RING_PRIORITY_NORMAL, 2); /* fills a batch by itself */
  queue_lanes_push_rows(&rig, 1, 11, RING_PRIORITY_NORMAL, 2);
  queue_lanes_push_rows(&rig, 2, 21, RING_PRIORITY_NORMAL, 2);
  queue_lanes_expect_batch(&rig, 0, (const uint64_t[]){1, 2, 11, 21}, 4, 8);
  queue_lanes_expect_batch(&rig, 0, (const uint64_t[]){3, 4}, 2, 4);
  queue_lanes_close(&rig);
}

static void who_is_late_does_not_ride(void **state) {
  (void)state;
  struct queue_lanes rig;
  queue_lanes_open(&rig);
  queue_lanes_push(&rig, 0, 1);
  (void)queue_lanes_push_until(&rig, 1, 2, RING_PRIORITY_NORMAL, 50);
  (void)queue_lanes_push_until(&rig, 2, 3, RING_PRIORITY_NORMAL, 51);
  queue_lanes_expect_batch(&rig, 50, (const uint64_t[]){1, 3}, 2, 2);
  queue_lanes_expect_pop(&rig, 2);
  queue_lanes_close(&rig);
}

static void a_gathering_can_be_undone(void **state) {
  (void)state;
  struct queue_lanes rig;
  queue_lanes_open(&rig);
  queue_lanes_push(&rig, 0, 1);
  queue_lanes_push(&rig, 1, 2);
  queue_lanes_push(&rig, 2, 3);
  struct queue_job *front = queue_front(&rig.queue);
  assert_int_equal(queue_gather(&rig.queue, front, 3, 0), 3);
  assert_int_equal(queue_gather(&rig.queue, front, 1, 0), 1);
  assert_null(front->mate);
  assert_null(front->product.next);
  struct queue_job *second = queue_find(&rig.lane[1], 2);
  queue_gather(&rig.queue, front, 3, 0);
  queue_take(&rig.queue, second); /* is cancelled before the device takes any */
  queue_release(second);
  queue_lanes_expect_batch(&rig, 0, (const uint64_t[]){1, 3}, 2, 2);
  queue_lanes_close(&rig);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_of_several_sessions_go_together),
      cmocka_unit_test(what_differs_goes_apart),
      cmocka_unit_test(the_same_bias_goes_together),
      cmocka_unit_test(a_large_job_goes_alone),
      cmocka_unit_test(a_batch_is_shared_out_evenly),
      cmocka_unit_test(who_is_late_does_not_ride),
      cmocka_unit_test(a_gathering_can_be_undone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
