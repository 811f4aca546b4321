/* The worker's queue: order within a session, turns between sessions, classes, bounds, sessions that go, what is held
 * for events, and what is gathered into one product. */
#include "tests/support/worker/queue_lanes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void empty_queue_has_no_job(void **state) {
  struct queue_lanes rig;
  queue_lanes_open(&rig);
  assert_null(queue_front(&rig.queue));
  assert_null(queue_any(&rig.lane[0]));
  assert_null(queue_find(&rig.lane[0], 0));
  queue_lanes_close(&rig);
}

static void one_session_is_served_in_order(void **state) {
  struct queue_lanes rig;
  queue_lanes_open(&rig);
  for (unsigned round = 0; round < 3; round++) {
    for (uint64_t tag = 0; tag < QUEUE_LANES_SLOTS; tag++)
      queue_lanes_push(&rig, 0, tag);
    for (uint64_t tag = 0; tag < QUEUE_LANES_SLOTS; tag++)
      queue_lanes_expect_pop(&rig, tag);
  }
  assert_null(queue_front(&rig.queue));
  queue_lanes_close(&rig);
}

static void sessions_take_turns(void **state) {
  struct queue_lanes rig;
  queue_lanes_open(&rig);
  for (uint64_t tag = 0; tag < QUEUE_LANES_SLOTS; tag++)
    queue_lanes_push(&rig, 0, tag);
  queue_lanes_push(&rig, 1, 10);
  queue_lanes_push(&rig, 1, 11);
  queue_lanes_push(&rig, 2, 20);
  const uint64_t order[] = {0, 10, 20, 1, 11, 2, 3};
  for (size_t i = 0; i < sizeof order / sizeof *order; i++)
    queue_lanes_expect_pop(&rig, order[i]);
  queue_lanes_close(&rig);
}

static void a_late_session_waits_one_turn(void **state) {
  struct queue_lanes rig;
  queue_lanes_open(&rig);
  queue_lanes_push(&rig, 0, 0);
  queue_lanes_push(&rig, 0, 1);
  queue_lanes_push(&rig, 0, 2);
  queue_lanes_expect_pop(&rig, 0);
  queue_lanes_push(&rig, 1, 10);
  queue_lanes_expect_pop(&rig, 1);
  queue_lanes_expect_pop(&rig, 10);
  queue_lanes_expect_pop(&rig, 2);
  queue_lanes_close(&rig);
}

static void a_lane_has_so_many_slots(void **state) {
  struct queue_lanes rig;
  queue_lanes_open(&rig);
  for (uint64_t tag = 0; tag < QUEUE_LANES_SLOTS; tag++)
    queue_lanes_push(&rig, 0, tag);
  assert_null(queue_reserve(&rig.lane[0]));
  queue_lanes_push(&rig, 1, 10);
  struct queue_job *started = queue_lanes_pop(&rig);
  assert_int_equal(started->tag, 0);
  assert_null(queue_reserve(&rig.lane[0])); /* on the device, its slot is still in use */
  queue_release(started);
  assert_int_equal(rig.lane[0].taken, QUEUE_LANES_SLOTS - 1);
  queue_lanes_push(&rig, 0, QUEUE_LANES_SLOTS);
  assert_null(queue_reserve(&rig.lane[0]));
  queue_lanes_close(&rig);
}

static void a_session_that_goes_loses_what_waits(void **state) {
  for (size_t gone = 0; gone < 3; gone++) { /* first, middle and last of the lanes that wait */
    struct queue_lanes rig;
    queue_lanes_open(&rig);
    for (size_t lane = 0; lane < 3; lane++)
      for (uint64_t i = 0; i < 2; i++)
        queue_lanes_push(&rig, lane, lane * 10 + i);
    for (uint64_t i = 0; i < 2; i++) {
      struct queue_job *job = queue_lanes_drop(&rig, gone);
      assert_non_null(job);
      assert_int_equal(job->tag, gone * 10 + i);
      queue_release(job);
    }
    assert_null(queue_lanes_drop(&rig, gone));
    assert_int_equal(rig.lane[gone].taken, 0);
    assert_int_equal(rig.queue.waiting, 4);
    for (uint64_t i = 0; i < 2; i++)
      for (size_t lane = 0; lane < 3; lane++)
        if (lane != gone)
          queue_lanes_expect_pop(&rig, lane * 10 + i);
    assert_null(queue_front(&rig.queue));
    queue_lanes_push(&rig, gone, 99); /* and may come again */
    queue_lanes_expect_pop(&rig, 99);
    queue_lanes_close(&rig);
  }
}

static void a_drop_keeps_what_is_on_the_device(void **state) {
  struct queue_lanes rig;
  queue_lanes_open(&rig);
  queue_lanes_push(&rig, 0, 0);
  queue_lanes_push(&rig, 0, 1);
  struct queue_job *started = queue_lanes_pop(&rig);
  struct queue_job *dropped = queue_lanes_drop(&rig, 0);
  assert_int_equal(dropped->tag, 1);
  queue_release(dropped);
  assert_int_equal(rig.lane[0].taken, 1);
  queue_release(started);
  assert_int_equal(rig.lane[0].taken, 0);
  queue_lanes_close(&rig);
}

static void urgent_goes_first_and_background_last(void **state) {
  struct queue_lanes rig;
  queue_lanes_open(&rig);
  queue_lanes_push_rows(&rig, 0, 1, RING_PRIORITY_BACKGROUND, 1);
  queue_lanes_push_rows(&rig, 0, 2, RING_PRIORITY_NORMAL, 1);
  queue_lanes_push_rows(&rig, 1, 3, RING_PRIORITY_NORMAL, 1);
  queue_lanes_push_rows(&rig, 0, 4, RING_PRIORITY_URGENT, 1);
  queue_lanes_push_rows(&rig, 1, 5, RING_PRIORITY_URGENT, 1);
  const uint64_t order[] = {4, 5, 2, 3, 1};
  for (size_t i = 0; i < sizeof order / sizeof *order; i++)
    queue_lanes_expect_pop(&rig, order[i]);
  queue_lanes_close(&rig);
}

static void no_class_starves(void **state) {
  struct queue_lanes rig;
  queue_lanes_open(&rig);
  queue_lanes_push_rows(&rig, 1, 100, RING_PRIORITY_BACKGROUND, 1);
  unsigned urgent = 0;
  for (;; urgent++) {
    queue_lanes_push_rows(&rig, 0, 1, RING_PRIORITY_URGENT, 1);
    struct queue_job *job = queue_lanes_pop(&rig);
    uint64_t tag = job->tag;
    queue_release(job);
    if (tag == 100)
      break;
    assert_true(urgent < RING_TURN_BELOW);
  }
  assert_int_equal(urgent, RING_TURN_BELOW - 1);
  queue_lanes_close(&rig);
}

static void a_job_is_found_by_its_tag(void **state) {
  struct queue_lanes rig;
  queue_lanes_open(&rig);
  queue_lanes_push_rows(&rig, 0, 7, RING_PRIORITY_BACKGROUND, 1);
  struct queue_job *sought = queue_lanes_push_rows(&rig, 0, 8, RING_PRIORITY_URGENT, 1);
  queue_lanes_push_rows(&rig, 1, 9, RING_PRIORITY_NORMAL, 1);
  assert_null(queue_find(&rig.lane[0], 9));
  assert_ptr_equal(queue_find(&rig.lane[0], 8), sought);
  queue_take(&rig.queue, sought);
  queue_release(sought);
  assert_null(queue_find(&rig.lane[0], 8));
  queue_lanes_expect_pop(&rig, 9);
  queue_lanes_expect_pop(&rig, 7);
  queue_lanes_close(&rig);
}

/* ---- held for events */

static struct queue_job *hold(struct queue_lanes *rig, size_t lane, uint64_t tag, struct queue_event *event) {
  struct queue_job *job = queue_reserve(&rig->lane[lane]);
  assert_non_null(job);
  job->tag = tag;
  job->priority = RING_PRIORITY_URGENT;
  job->product = (struct backend_job){.m = 1};
  queue_hold(&rig->queue, job, event);
  return job;
}

static void held_jobs_have_no_turn(void **state) {
  struct queue_lanes rig;
  struct queue_event events[2] = {{.held = 0}};
  queue_lanes_open(&rig);
  assert_null(queue_next_event(&rig.queue));
  struct queue_job *first = hold(&rig, 0, 1, &events[0]);
  struct queue_job *second = hold(&rig, 0, 2, &events[1]), *third = hold(&rig, 1, 3, &events[1]);
  assert_null(queue_front(&rig.queue));
  queue_lanes_push(&rig, 0, 4);
  queue_lanes_expect_pop(&rig, 4);
  assert_int_equal(rig.queue.held, 3);
  assert_int_equal(rig.queue.waiting, 0);
  assert_ptr_equal(queue_next_event(&rig.queue), &events[0]); /* in turns */
  assert_ptr_equal(queue_next_event(&rig.queue), &events[1]);
  assert_ptr_equal(queue_next_event(&rig.queue), &events[0]);
  assert_ptr_equal(TAILQ_FIRST(&events[1].jobs), second);
  assert_ptr_equal(queue_find(&rig.lane[0], 2), second);
  assert_ptr_equal(queue_any(&rig.lane[1]), third);
  queue_take(&rig.queue, second);
  queue_push(&rig.queue, second, &rig.groups[0]);
  queue_lanes_expect_pop(&rig, 2);
  queue_take(&rig.queue, third);
  queue_take(&rig.queue, first);
  assert_null(queue_next_event(&rig.queue));
  assert_null(queue_any(&rig.lane[0]));
  assert_int_equal(rig.queue.held + events[0].held + events[1].held, 0);
  queue_lanes_close(&rig);
}

static void rows_of_several_sessions_go_together(void **state) {
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
      cmocka_unit_test(empty_queue_has_no_job),
      cmocka_unit_test(one_session_is_served_in_order),
      cmocka_unit_test(sessions_take_turns),
      cmocka_unit_test(a_late_session_waits_one_turn),
      cmocka_unit_test(a_lane_has_so_many_slots),
      cmocka_unit_test(a_session_that_goes_loses_what_waits),
      cmocka_unit_test(a_drop_keeps_what_is_on_the_device),
      cmocka_unit_test(urgent_goes_first_and_background_last),
      cmocka_unit_test(no_class_starves),
      cmocka_unit_test(a_job_is_found_by_its_tag),
      cmocka_unit_test(held_jobs_have_no_turn),
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
