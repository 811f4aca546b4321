/* The worker's queue: what users have of the device, and products that have several turns. */
#include "tests/support/worker/queue_lanes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* ---- users */

/* The front begins, is charged and goes; returns its lane. */
static size_t serve_one(struct queue_lanes *rig, const uint64_t cost_ns[3]) {
  struct queue_job *job = queue_lanes_pop(rig);
  assert_non_null(job);
  size_t lane = (size_t)(job->lane - rig->lane);
  queue_charge(&rig->queue, job, cost_ns[lane]);
  queue_release(job);
  return lane;
}

/* All lanes always have something; how long the device worked for each in so many turns. */
static void serve_many(struct queue_lanes *rig, unsigned turns, const uint64_t cost_ns[3], uint64_t had_ns[3]) {
  for (size_t lane = 0; lane < 3; lane++) {
    had_ns[lane] = 0;
    for (uint64_t i = 0; i < 2; i++)
      queue_lanes_push(rig, lane, i);
  }
  for (unsigned i = 0; i < turns; i++) {
    size_t lane = serve_one(rig, cost_ns);
    had_ns[lane] += cost_ns[lane];
    queue_lanes_push(rig, lane, i);
  }
  for (size_t lane = 0; lane < 3; lane++)
    for (struct queue_job *job; (job = queue_lanes_drop(rig, lane)) != NULL;)
      queue_release(job);
}

/* Two sessions of one user get together what one of another user gets, and a turn each. */
static void users_share_and_not_sessions(void **state) {
  struct queue_lanes rig;
  uint64_t had_ns[3];
  queue_lanes_open_for(&rig, (const uint32_t[]){1, 1, 2});
  serve_many(&rig, 4000, (const uint64_t[]){100, 100, 100}, had_ns);
  assert_in_range(had_ns[2], 199900, 200100);
  assert_in_range(had_ns[0], 99900, 100100);
  queue_lanes_close(&rig);
}

/* By the device's time, not by the number of products. */
static void long_products_are_not_more(void **state) {
  struct queue_lanes rig;
  uint64_t had_ns[3];
  queue_lanes_open_for(&rig, (const uint32_t[]){1, 2, 3});
  serve_many(&rig, 9000, (const uint64_t[]){5000, 300, 10}, had_ns);
  uint64_t all_ns = had_ns[0] + had_ns[1] + had_ns[2];
  for (size_t lane = 0; lane < 3; lane++)
    assert_in_range(had_ns[lane], all_ns / 3 - 5000, all_ns / 3 + 5000);
  queue_lanes_close(&rig);
}

/* One user's thousand products cost another one a factor, not a queue: each of his waits for one of hers at most. */
static void a_flood_costs_a_factor(void **state) {
  struct queue_lanes rig;
  const uint64_t cost_ns[3] = {100, 100, 100};
  queue_lanes_open_for(&rig, (const uint32_t[]){1, 1, 2});
  for (uint64_t i = 0; i < QUEUE_LANES_SLOTS; i++) {
    queue_lanes_push(&rig, 0, i);
    queue_lanes_push(&rig, 1, i);
  }
  for (unsigned i = 0; i < 500; i++) {
    queue_lanes_push(&rig, 2, i);
    unsigned others = 0;
    for (size_t lane; (lane = serve_one(&rig, cost_ns)) != 2; others++)
      queue_lanes_push(&rig, lane, i);
    assert_true(others <= 1);
  }
  queue_lanes_close(&rig);
}

static void nothing_is_saved_up(void **state) {
  struct queue_lanes rig;
  const uint64_t cost_ns[3] = {100, 100, 100};
  queue_lanes_open_for(&rig, (const uint32_t[]){1, 2, 3});
  queue_lanes_push(&rig, 0, 0);
  for (unsigned i = 0; i < 1000; i++) { /* alone for a long time */
    queue_lanes_push(&rig, 0, i);
    assert_int_equal(serve_one(&rig, cost_ns), 0);
  }
  unsigned late = 0;
  queue_lanes_push(&rig, 1, 0);
  queue_lanes_push(&rig, 1, 1);
  for (unsigned i = 0; i < 20; i++) {
    size_t lane = serve_one(&rig, cost_ns);
    queue_lanes_push(&rig, lane, i);
    late += lane == 1;
  }
  assert_in_range(late, 10, 11);
  queue_lanes_close(&rig);
}

/* ---- products that have several turns */

static struct queue_job *begin_turns(struct queue_lanes *rig, uint64_t tag) {
  struct queue_job *job = queue_lanes_pop(rig);
  assert_non_null(job);
  assert_int_equal(job->tag, tag);
  queue_return(&rig->queue, job);
  return job;
}

static void expect_turn(struct queue_lanes *rig, struct queue_job *job, bool more) {
  assert_ptr_equal(queue_front(&rig->queue), job);
  queue_resume(&rig->queue, job);
  if (more)
    queue_return(&rig->queue, job);
  else
    queue_release(job);
}

static void one_under_way_has_turns_like_others(void **state) {
  struct queue_lanes rig;
  queue_lanes_open(&rig);
  queue_lanes_push(&rig, 0, 1);
  queue_lanes_push(&rig, 0, 2);
  struct queue_job *job = begin_turns(&rig, 1);
  assert_int_equal(rig.queue.under_way, 1);
  expect_turn(&rig, job, true); /* alone, and ahead of what waits behind it */
  queue_lanes_push(&rig, 1, 10);
  queue_lanes_push(&rig, 1, 11);
  expect_turn(&rig, job, true);
  queue_lanes_expect_pop(&rig, 10);
  expect_turn(&rig, job, true);
  queue_lanes_push_rows(&rig, 2, 20, RING_PRIORITY_URGENT, 1);
  queue_lanes_expect_pop(&rig, 20);
  queue_lanes_expect_pop(&rig, 11);
  expect_turn(&rig, job, false);
  queue_lanes_expect_pop(&rig, 2);
  assert_null(queue_front(&rig.queue));
  assert_int_equal(rig.queue.under_way, 0);
  queue_lanes_close(&rig);
}

/* While a turn of one is on the device, the next one of the same session begins: neither takes the other's place, and
 * the older goes first. */
static void several_of_a_session_are_under_way(void **state) {
  struct queue_lanes rig;
  queue_lanes_open(&rig);
  for (uint64_t tag = 1; tag <= 3; tag++)
    queue_lanes_push_until(&rig, 0, tag, RING_PRIORITY_NORMAL, 0)->taken_ns = tag;
  struct queue_job *first = begin_turns(&rig, 1);
  queue_resume(&rig.queue, first); /* on the device */
  struct queue_job *second = begin_turns(&rig, 2);
  queue_resume(&rig.queue, second);
  struct queue_job *third = begin_turns(&rig, 3);
  queue_return(&rig.queue, second);
  queue_return(&rig.queue, first);
  assert_int_equal(rig.queue.under_way, 3);
  assert_int_equal(queue_under_way_of(first), 3);
  for (uint64_t tag = 1; tag <= 3; tag++)
    assert_int_equal(queue_find(&rig.lane[0], tag)->tag, tag);
  expect_turn(&rig, first, true);
  expect_turn(&rig, first, false);
  expect_turn(&rig, second, false);
  expect_turn(&rig, third, false);
  assert_null(queue_front(&rig.queue));
  assert_int_equal(rig.queue.under_way, 0);
  queue_lanes_close(&rig);
}

static void one_under_way_is_found_and_not_taken(void **state) {
  struct queue_lanes rig;
  queue_lanes_open_for(&rig, (const uint32_t[]){1, 2, 1});
  queue_lanes_push_rows(&rig, 0, 1, RING_PRIORITY_BACKGROUND, 1);
  struct queue_job *later = begin_turns(&rig, 1);
  assert_ptr_equal(queue_any_under_way(&rig.queue, later), later);
  queue_lanes_push(&rig, 1, 2);
  struct queue_job *sooner = begin_turns(&rig, 2);
  queue_lanes_push(&rig, 2, 3);
  struct queue_job *waits = queue_find(&rig.lane[2], 3);
  assert_ptr_equal(queue_any_under_way(&rig.queue, waits), sooner); /* the class that goes first */
  assert_ptr_equal(queue_any_under_way(&rig.queue, later), later);  /* its user's own */
  assert_int_equal(queue_under_way_of(waits), 0);
  assert_int_equal(queue_under_way_of(later), 1);
  assert_ptr_equal(queue_find(&rig.lane[0], 1), later);
  assert_null(queue_any(&rig.lane[0]));
  queue_resume(&rig.queue, sooner);
  queue_release(sooner);
  assert_ptr_equal(queue_any_under_way(&rig.queue, waits), later);
  queue_lanes_expect_pop(&rig, 3);
  queue_resume(&rig.queue, later);
  assert_null(queue_any_under_way(&rig.queue, later));
  queue_release(later);
  queue_lanes_close(&rig);
}

/* What cannot begin yet does not stand in the way of a user's other sessions. */
static void a_turn_can_be_passed(void **state) {
  struct queue_lanes rig;
  queue_lanes_open_for(&rig, (const uint32_t[]){1, 1, 2});
  queue_lanes_push(&rig, 0, 1);
  queue_lanes_push(&rig, 1, 2);
  struct queue_job *front = queue_front(&rig.queue);
  assert_int_equal(front->tag, 1);
  queue_pass(&rig.queue, front);
  queue_lanes_expect_pop(&rig, 2);
  queue_lanes_expect_pop(&rig, 1);
  queue_lanes_close(&rig);
}

static void late_ones_are_found_wherever_they_wait(void **state) {
  struct queue_lanes rig;
  queue_lanes_open_for(&rig, (const uint32_t[]){1, 2, 3});
  queue_lanes_push(&rig, 0, 1);
  queue_lanes_push(&rig, 1, 2);
  struct queue_job *late = queue_lanes_push_until(&rig, 1, 3, RING_PRIORITY_BACKGROUND, 100);
  assert_int_equal(rig.queue.timed, 1);
  assert_null(queue_late(&rig.queue, 99));
  assert_ptr_equal(queue_late(&rig.queue, 100), late);
  queue_take(&rig.queue, late);
  queue_release(late);
  assert_null(queue_late(&rig.queue, 100));
  assert_int_equal(rig.queue.timed, 0);
  queue_lanes_expect_pop(&rig, 1);
  queue_lanes_expect_pop(&rig, 2);
  queue_lanes_close(&rig);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(users_share_and_not_sessions),
      cmocka_unit_test(long_products_are_not_more),
      cmocka_unit_test(a_flood_costs_a_factor),
      cmocka_unit_test(nothing_is_saved_up),
      cmocka_unit_test(one_under_way_has_turns_like_others),
      cmocka_unit_test(several_of_a_session_are_under_way),
      cmocka_unit_test(one_under_way_is_found_and_not_taken),
      cmocka_unit_test(a_turn_can_be_passed),
      cmocka_unit_test(late_ones_are_found_wherever_they_wait),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
