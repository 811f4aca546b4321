/* The worker's queue: order within a session, turns between sessions, bounds, and sessions that go. */
#include "daemon/worker/queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { SLOTS = 4 };

struct fixture {
  struct queue queue;
  struct queue_lane lanes[3];
};

static void open_fixture(struct fixture *fixture) {
  struct error error;
  queue_init(&fixture->queue);
  for (size_t i = 0; i < 3; i++)
    assert_int_equal(queue_lane_open(&fixture->lanes[i], fixture, SLOTS, &error), STATUS_OK);
}

static void close_fixture(struct fixture *fixture) {
  for (size_t i = 0; i < 3; i++)
    queue_lane_close(&fixture->lanes[i]);
}

static void push(struct fixture *fixture, size_t lane, uint64_t tag) {
  struct queue_job *job = queue_reserve(&fixture->lanes[lane]);
  assert_non_null(job);
  job->tag = tag;
  queue_push(&fixture->queue, job);
}

static void expect_pop(struct fixture *fixture, uint64_t tag) {
  struct queue_job *front = queue_front(&fixture->queue);
  struct queue_job *job = queue_pop(&fixture->queue);
  assert_non_null(job);
  assert_ptr_equal(front, job);
  assert_int_equal(job->tag, tag);
  queue_release(job);
}

static void empty_queue_has_no_job(void **state) {
  (void)state;
  struct fixture fixture;
  open_fixture(&fixture);
  assert_null(queue_front(&fixture.queue));
  assert_null(queue_pop(&fixture.queue));
  assert_null(queue_drop(&fixture.queue, &fixture.lanes[0]));
  close_fixture(&fixture);
}

static void one_session_is_served_in_order(void **state) {
  (void)state;
  struct fixture fixture;
  open_fixture(&fixture);
  for (unsigned round = 0; round < 3; round++) {
    for (uint64_t tag = 0; tag < SLOTS; tag++)
      push(&fixture, 0, tag);
    for (uint64_t tag = 0; tag < SLOTS; tag++)
      expect_pop(&fixture, tag);
  }
  assert_null(queue_front(&fixture.queue));
  close_fixture(&fixture);
}

static void sessions_take_turns(void **state) {
  (void)state;
  struct fixture fixture;
  open_fixture(&fixture);
  for (uint64_t tag = 0; tag < SLOTS; tag++)
    push(&fixture, 0, tag);
  push(&fixture, 1, 10);
  push(&fixture, 1, 11);
  push(&fixture, 2, 20);
  const uint64_t order[] = {0, 10, 20, 1, 11, 2, 3};
  for (size_t i = 0; i < sizeof order / sizeof *order; i++)
    expect_pop(&fixture, order[i]);
  close_fixture(&fixture);
}

static void a_late_session_waits_one_turn(void **state) {
  (void)state;
  struct fixture fixture;
  open_fixture(&fixture);
  push(&fixture, 0, 0);
  push(&fixture, 0, 1);
  push(&fixture, 0, 2);
  expect_pop(&fixture, 0);
  push(&fixture, 1, 10);
  expect_pop(&fixture, 1);
  expect_pop(&fixture, 10);
  expect_pop(&fixture, 2);
  close_fixture(&fixture);
}

static void a_lane_has_so_many_slots(void **state) {
  (void)state;
  struct fixture fixture;
  open_fixture(&fixture);
  for (uint64_t tag = 0; tag < SLOTS; tag++)
    push(&fixture, 0, tag);
  assert_null(queue_reserve(&fixture.lanes[0]));
  push(&fixture, 1, 10);
  struct queue_job *started = queue_pop(&fixture.queue);
  assert_int_equal(started->tag, 0);
  assert_null(queue_reserve(&fixture.lanes[0])); /* on the device, its slot is still in use */
  queue_release(started);
  assert_int_equal(fixture.lanes[0].taken, SLOTS - 1);
  push(&fixture, 0, SLOTS);
  assert_null(queue_reserve(&fixture.lanes[0]));
  close_fixture(&fixture);
}

static void a_session_that_goes_loses_what_waits(void **state) {
  (void)state;
  for (size_t gone = 0; gone < 3; gone++) { /* first, middle and last of the lanes that wait */
    struct fixture fixture;
    open_fixture(&fixture);
    for (size_t lane = 0; lane < 3; lane++)
      for (uint64_t i = 0; i < 2; i++)
        push(&fixture, lane, lane * 10 + i);
    for (uint64_t i = 0; i < 2; i++) {
      struct queue_job *job = queue_drop(&fixture.queue, &fixture.lanes[gone]);
      assert_non_null(job);
      assert_int_equal(job->tag, gone * 10 + i);
      queue_release(job);
    }
    assert_null(queue_drop(&fixture.queue, &fixture.lanes[gone]));
    assert_int_equal(fixture.lanes[gone].taken, 0);
    assert_int_equal(fixture.queue.waiting, 4);
    for (uint64_t i = 0; i < 2; i++)
      for (size_t lane = 0; lane < 3; lane++)
        if (lane != gone)
          expect_pop(&fixture, lane * 10 + i);
    assert_null(queue_front(&fixture.queue));
    push(&fixture, gone, 99); /* and may come again */
    expect_pop(&fixture, 99);
    close_fixture(&fixture);
  }
}

static void a_drop_keeps_what_is_on_the_device(void **state) {
  (void)state;
  struct fixture fixture;
  open_fixture(&fixture);
  push(&fixture, 0, 0);
  push(&fixture, 0, 1);
  struct queue_job *started = queue_pop(&fixture.queue);
  struct queue_job *dropped = queue_drop(&fixture.queue, &fixture.lanes[0]);
  assert_int_equal(dropped->tag, 1);
  queue_release(dropped);
  assert_int_equal(fixture.lanes[0].taken, 1);
  queue_release(started);
  assert_int_equal(fixture.lanes[0].taken, 0);
  close_fixture(&fixture);
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
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
