/* The worker's queue: order within a session, turns between sessions, classes, bounds, sessions that go, and what is
 * gathered into one product. */
#include "daemon/worker/serve/queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { SLOTS = 4, ROWS = 8 };

struct fixture {
  struct queue queue;
  struct queue_group groups[2]; /* of two weights */
  struct queue_lane lanes[3];
};

/* The lanes are of these users. */
static void open_for(struct fixture *fixture, const uint32_t users[3]) {
  struct error error;
  *fixture = (struct fixture){.groups = {{.waiting = 0}}};
  queue_init(&fixture->queue);
  for (size_t i = 0; i < 3; i++) {
    assert_int_equal(queue_lane_open(&fixture->lanes[i], fixture, SLOTS, &error), STATUS_OK);
    assert_int_equal(queue_join(&fixture->queue, &fixture->lanes[i], users[i], &error), STATUS_OK);
  }
}

static void open_fixture(struct fixture *fixture) {
  open_for(fixture, (const uint32_t[]){7, 7, 7});
}

static void close_fixture(struct fixture *fixture) {
  for (size_t i = 0; i < 3; i++) {
    queue_leave(&fixture->queue, &fixture->lanes[i]);
    queue_lane_close(&fixture->lanes[i]);
  }
  assert_true(TAILQ_EMPTY(&fixture->queue.users));
}

static struct queue_job *push_rows(struct fixture *fixture, size_t lane, uint64_t tag, enum ring_priority priority,
                                   int64_t m) {
  struct queue_job *job = queue_reserve(&fixture->lanes[lane]);
  assert_non_null(job);
  job->tag = tag;
  job->priority = priority;
  job->deadline_ns = 0;
  job->product = (struct backend_job){.m = m, .x_type = GEMM_F16, .y_type = GEMM_F32};
  queue_push(&fixture->queue, job, &fixture->groups[0]);
  return job;
}

static struct queue_job *push_until(struct fixture *fixture, size_t lane, uint64_t tag, enum ring_priority priority,
                                    uint64_t deadline_ns) {
  struct queue_job *job = push_rows(fixture, lane, tag, priority, 1);
  queue_take(&fixture->queue, job);
  job->deadline_ns = deadline_ns;
  queue_push(&fixture->queue, job, &fixture->groups[0]);
  return job;
}

static void push(struct fixture *fixture, size_t lane, uint64_t tag) {
  push_rows(fixture, lane, tag, RING_PRIORITY_NORMAL, 1);
}

/* The front job begins, alone. */
static struct queue_job *pop(struct fixture *fixture) {
  struct queue_job *front = queue_front(&fixture->queue);
  if (front != NULL) {
    assert_int_equal(queue_gather(&fixture->queue, front, 1, 0), front->product.m);
    assert_null(front->mate);
    queue_begin(&fixture->queue, front);
  }
  return front;
}

static void expect_pop(struct fixture *fixture, uint64_t tag) {
  struct queue_job *job = pop(fixture);
  assert_non_null(job);
  assert_int_equal(job->tag, tag);
  queue_release(job);
}

static struct queue_job *drop(struct fixture *fixture, size_t lane) {
  struct queue_job *job = queue_any(&fixture->lanes[lane]);
  if (job != NULL)
    queue_take(&fixture->queue, job);
  return job;
}

/* Gathers behind the front job, which begins with its mates: `count` jobs of these tags, in any order. */
static void expect_batch(struct fixture *fixture, uint64_t now_ns, const uint64_t *tags, size_t count, int64_t rows) {
  struct queue_job *front = queue_front(&fixture->queue);
  assert_non_null(front);
  assert_int_equal(queue_gather(&fixture->queue, front, ROWS, now_ns), rows);
  queue_begin(&fixture->queue, front);
  const struct backend_job *product = &front->product;
  size_t found = 0;
  for (struct queue_job *job = front, *next; job != NULL; job = next, product = product->next) {
    assert_ptr_equal(product, &job->product);
    bool expected = false;
    for (size_t i = 0; i < count; i++)
      expected |= tags[i] == job->tag;
    assert_true(expected);
    found++;
    next = job->mate;
    queue_release(job);
  }
  assert_null(product);
  assert_int_equal(found, count);
}

static void empty_queue_has_no_job(void **state) {
  (void)state;
  struct fixture fixture;
  open_fixture(&fixture);
  assert_null(queue_front(&fixture.queue));
  assert_null(queue_any(&fixture.lanes[0]));
  assert_null(queue_find(&fixture.lanes[0], 0));
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
  struct queue_job *started = pop(&fixture);
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
      struct queue_job *job = drop(&fixture, gone);
      assert_non_null(job);
      assert_int_equal(job->tag, gone * 10 + i);
      queue_release(job);
    }
    assert_null(drop(&fixture, gone));
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
  struct queue_job *started = pop(&fixture);
  struct queue_job *dropped = drop(&fixture, 0);
  assert_int_equal(dropped->tag, 1);
  queue_release(dropped);
  assert_int_equal(fixture.lanes[0].taken, 1);
  queue_release(started);
  assert_int_equal(fixture.lanes[0].taken, 0);
  close_fixture(&fixture);
}

static void urgent_goes_first_and_background_last(void **state) {
  (void)state;
  struct fixture fixture;
  open_fixture(&fixture);
  push_rows(&fixture, 0, 1, RING_PRIORITY_BACKGROUND, 1);
  push_rows(&fixture, 0, 2, RING_PRIORITY_NORMAL, 1);
  push_rows(&fixture, 1, 3, RING_PRIORITY_NORMAL, 1);
  push_rows(&fixture, 0, 4, RING_PRIORITY_URGENT, 1);
  push_rows(&fixture, 1, 5, RING_PRIORITY_URGENT, 1);
  const uint64_t order[] = {4, 5, 2, 3, 1};
  for (size_t i = 0; i < sizeof order / sizeof *order; i++)
    expect_pop(&fixture, order[i]);
  close_fixture(&fixture);
}

static void no_class_starves(void **state) {
  (void)state;
  struct fixture fixture;
  open_fixture(&fixture);
  push_rows(&fixture, 1, 100, RING_PRIORITY_BACKGROUND, 1);
  unsigned urgent = 0;
  for (;; urgent++) {
    push_rows(&fixture, 0, 1, RING_PRIORITY_URGENT, 1);
    struct queue_job *job = pop(&fixture);
    uint64_t tag = job->tag;
    queue_release(job);
    if (tag == 100)
      break;
    assert_true(urgent < RING_TURN_BELOW);
  }
  assert_int_equal(urgent, RING_TURN_BELOW - 1);
  close_fixture(&fixture);
}

static void a_job_is_found_by_its_tag(void **state) {
  (void)state;
  struct fixture fixture;
  open_fixture(&fixture);
  push_rows(&fixture, 0, 7, RING_PRIORITY_BACKGROUND, 1);
  struct queue_job *sought = push_rows(&fixture, 0, 8, RING_PRIORITY_URGENT, 1);
  push_rows(&fixture, 1, 9, RING_PRIORITY_NORMAL, 1);
  assert_null(queue_find(&fixture.lanes[0], 9));
  assert_ptr_equal(queue_find(&fixture.lanes[0], 8), sought);
  queue_take(&fixture.queue, sought);
  queue_release(sought);
  assert_null(queue_find(&fixture.lanes[0], 8));
  expect_pop(&fixture, 9);
  expect_pop(&fixture, 7);
  close_fixture(&fixture);
}

static void rows_of_several_sessions_go_together(void **state) {
  (void)state;
  struct fixture fixture;
  open_fixture(&fixture);
  push_rows(&fixture, 0, 1, RING_PRIORITY_NORMAL, 2);
  push_rows(&fixture, 1, 2, RING_PRIORITY_NORMAL, 3);
  push_rows(&fixture, 2, 3, RING_PRIORITY_BACKGROUND, 3);
  push_rows(&fixture, 2, 4, RING_PRIORITY_NORMAL, 1);
  expect_batch(&fixture, 0, (const uint64_t[]){1, 2, 3}, 3, 8);
  expect_batch(&fixture, 0, (const uint64_t[]){4}, 1, 1);
  assert_int_equal(fixture.groups[0].waiting, 0);
  assert_int_equal(fixture.groups[0].rows, 0);
  assert_null(queue_front(&fixture.queue));
  close_fixture(&fixture);
}

static void what_differs_goes_apart(void **state) {
  (void)state;
  struct fixture fixture;
  open_fixture(&fixture);
  static const float bias = 1;
  push(&fixture, 0, 1);
  push(&fixture, 0, 2);
  push(&fixture, 0, 3);
  struct queue_job *biased = queue_find(&fixture.lanes[0], 2), *narrow = queue_find(&fixture.lanes[0], 3);
  biased->product.bias = &bias;
  narrow->product.y_type = GEMM_F16;
  struct queue_job *other = queue_reserve(&fixture.lanes[1]); /* of another weight */
  other->tag = 4;
  other->priority = RING_PRIORITY_NORMAL;
  other->deadline_ns = 0;
  other->product = (struct backend_job){.m = 1, .x_type = GEMM_F16, .y_type = GEMM_F32};
  queue_push(&fixture.queue, other, &fixture.groups[1]);
  push(&fixture, 2, 5);
  expect_batch(&fixture, 0, (const uint64_t[]){1, 5}, 2, 2);
  expect_batch(&fixture, 0, (const uint64_t[]){4}, 1, 1);
  expect_batch(&fixture, 0, (const uint64_t[]){2}, 1, 1);
  expect_batch(&fixture, 0, (const uint64_t[]){3}, 1, 1);
  close_fixture(&fixture);
}

/* A bias that lies in one place is one bias. */
static void the_same_bias_goes_together(void **state) {
  (void)state;
  struct fixture fixture;
  open_fixture(&fixture);
  static const float biases[2] = {1, 2};
  for (uint64_t tag = 1; tag <= 5; tag++) {
    push(&fixture, tag / 4, tag);
    struct queue_job *job = queue_find(&fixture.lanes[tag / 4], tag);
    job->product.bias = &biases[tag % 2];
    job->product.bias_type = tag == 5 ? GEMM_F16 : GEMM_F32;
  }
  expect_batch(&fixture, 0, (const uint64_t[]){1, 3}, 2, 2);
  expect_batch(&fixture, 0, (const uint64_t[]){4, 2}, 2, 2);
  expect_batch(&fixture, 0, (const uint64_t[]){5}, 1, 1);
  close_fixture(&fixture);
}

static void a_large_job_goes_alone(void **state) {
  (void)state;
  struct fixture fixture;
  open_fixture(&fixture);
  push_rows(&fixture, 0, 1, RING_PRIORITY_NORMAL, ROWS + 1);
  push(&fixture, 1, 2);
  push(&fixture, 2, 3);
  expect_batch(&fixture, 0, (const uint64_t[]){1}, 1, ROWS + 1);
  expect_batch(&fixture, 0, (const uint64_t[]){2, 3}, 2, 2);
  close_fixture(&fixture);
}

static void a_batch_is_shared_out_evenly(void **state) {
  (void)state;
  struct fixture fixture;
  open_fixture(&fixture);
  for (uint64_t tag = 1; tag <= SLOTS; tag++)
    push_rows(&fixture, 0, tag, RING_PRIORITY_NORMAL, 2); /* fills a batch by itself */
  push_rows(&fixture, 1, 11, RING_PRIORITY_NORMAL, 2);
  push_rows(&fixture, 2, 21, RING_PRIORITY_NORMAL, 2);
  expect_batch(&fixture, 0, (const uint64_t[]){1, 2, 11, 21}, 4, 8);
  expect_batch(&fixture, 0, (const uint64_t[]){3, 4}, 2, 4);
  close_fixture(&fixture);
}

static void who_is_late_does_not_ride(void **state) {
  (void)state;
  struct fixture fixture;
  open_fixture(&fixture);
  push(&fixture, 0, 1);
  (void)push_until(&fixture, 1, 2, RING_PRIORITY_NORMAL, 50);
  (void)push_until(&fixture, 2, 3, RING_PRIORITY_NORMAL, 51);
  expect_batch(&fixture, 50, (const uint64_t[]){1, 3}, 2, 2);
  expect_pop(&fixture, 2);
  close_fixture(&fixture);
}

static void a_gathering_can_be_undone(void **state) {
  (void)state;
  struct fixture fixture;
  open_fixture(&fixture);
  push(&fixture, 0, 1);
  push(&fixture, 1, 2);
  push(&fixture, 2, 3);
  struct queue_job *front = queue_front(&fixture.queue);
  assert_int_equal(queue_gather(&fixture.queue, front, 3, 0), 3);
  assert_int_equal(queue_gather(&fixture.queue, front, 1, 0), 1);
  assert_null(front->mate);
  assert_null(front->product.next);
  struct queue_job *second = queue_find(&fixture.lanes[1], 2);
  queue_gather(&fixture.queue, front, 3, 0);
  queue_take(&fixture.queue, second); /* is cancelled before the device takes any */
  queue_release(second);
  expect_batch(&fixture, 0, (const uint64_t[]){1, 3}, 2, 2);
  close_fixture(&fixture);
}

/* ---- held for events */

static struct queue_job *hold(struct fixture *fixture, size_t lane, uint64_t tag, struct queue_event *event) {
  struct queue_job *job = queue_reserve(&fixture->lanes[lane]);
  assert_non_null(job);
  job->tag = tag;
  job->priority = RING_PRIORITY_URGENT;
  job->product = (struct backend_job){.m = 1};
  queue_hold(&fixture->queue, job, event);
  return job;
}

static void held_jobs_have_no_turn(void **state) {
  (void)state;
  struct fixture fixture;
  struct queue_event events[2] = {{.held = 0}};
  open_fixture(&fixture);
  assert_null(queue_next_event(&fixture.queue));
  struct queue_job *first = hold(&fixture, 0, 1, &events[0]);
  struct queue_job *second = hold(&fixture, 0, 2, &events[1]), *third = hold(&fixture, 1, 3, &events[1]);
  assert_null(queue_front(&fixture.queue));
  push(&fixture, 0, 4);
  expect_pop(&fixture, 4);
  assert_int_equal(fixture.queue.held, 3);
  assert_int_equal(fixture.queue.waiting, 0);
  assert_ptr_equal(queue_next_event(&fixture.queue), &events[0]); /* in turns */
  assert_ptr_equal(queue_next_event(&fixture.queue), &events[1]);
  assert_ptr_equal(queue_next_event(&fixture.queue), &events[0]);
  assert_ptr_equal(TAILQ_FIRST(&events[1].jobs), second);
  assert_ptr_equal(queue_find(&fixture.lanes[0], 2), second);
  assert_ptr_equal(queue_any(&fixture.lanes[1]), third);
  queue_take(&fixture.queue, second);
  queue_push(&fixture.queue, second, &fixture.groups[0]);
  expect_pop(&fixture, 2);
  queue_take(&fixture.queue, third);
  queue_take(&fixture.queue, first);
  assert_null(queue_next_event(&fixture.queue));
  assert_null(queue_any(&fixture.lanes[0]));
  assert_int_equal(fixture.queue.held + events[0].held + events[1].held, 0);
  close_fixture(&fixture);
}

/* ---- users */

/* The front begins, is charged and goes; returns its lane. */
static size_t serve_one(struct fixture *fixture, const uint64_t cost_ns[3]) {
  struct queue_job *job = pop(fixture);
  assert_non_null(job);
  size_t lane = (size_t)(job->lane - fixture->lanes);
  queue_charge(&fixture->queue, job, cost_ns[lane]);
  queue_release(job);
  return lane;
}

/* All lanes always have something; how long the device worked for each in so many turns. */
static void serve_many(struct fixture *fixture, unsigned turns, const uint64_t cost_ns[3], uint64_t had_ns[3]) {
  for (size_t lane = 0; lane < 3; lane++) {
    had_ns[lane] = 0;
    for (uint64_t i = 0; i < 2; i++)
      push(fixture, lane, i);
  }
  for (unsigned i = 0; i < turns; i++) {
    size_t lane = serve_one(fixture, cost_ns);
    had_ns[lane] += cost_ns[lane];
    push(fixture, lane, i);
  }
  for (size_t lane = 0; lane < 3; lane++)
    for (struct queue_job *job; (job = drop(fixture, lane)) != NULL;)
      queue_release(job);
}

/* Two sessions of one user get together what one of another user gets, and a turn each. */
static void users_share_and_not_sessions(void **state) {
  (void)state;
  struct fixture fixture;
  uint64_t had_ns[3];
  open_for(&fixture, (const uint32_t[]){1, 1, 2});
  serve_many(&fixture, 4000, (const uint64_t[]){100, 100, 100}, had_ns);
  assert_in_range(had_ns[2], 199900, 200100);
  assert_in_range(had_ns[0], 99900, 100100);
  close_fixture(&fixture);
}

/* By the device's time, not by the number of products. */
static void long_products_are_not_more(void **state) {
  (void)state;
  struct fixture fixture;
  uint64_t had_ns[3];
  open_for(&fixture, (const uint32_t[]){1, 2, 3});
  serve_many(&fixture, 9000, (const uint64_t[]){5000, 300, 10}, had_ns);
  uint64_t all_ns = had_ns[0] + had_ns[1] + had_ns[2];
  for (size_t lane = 0; lane < 3; lane++)
    assert_in_range(had_ns[lane], all_ns / 3 - 5000, all_ns / 3 + 5000);
  close_fixture(&fixture);
}

/* One user's thousand products cost another one a factor, not a queue: each of his waits for one of hers at most. */
static void a_flood_costs_a_factor(void **state) {
  (void)state;
  struct fixture fixture;
  const uint64_t cost_ns[3] = {100, 100, 100};
  open_for(&fixture, (const uint32_t[]){1, 1, 2});
  for (uint64_t i = 0; i < SLOTS; i++) {
    push(&fixture, 0, i);
    push(&fixture, 1, i);
  }
  for (unsigned i = 0; i < 500; i++) {
    push(&fixture, 2, i);
    unsigned others = 0;
    for (size_t lane; (lane = serve_one(&fixture, cost_ns)) != 2; others++)
      push(&fixture, lane, i);
    assert_true(others <= 1);
  }
  close_fixture(&fixture);
}

static void nothing_is_saved_up(void **state) {
  (void)state;
  struct fixture fixture;
  const uint64_t cost_ns[3] = {100, 100, 100};
  open_for(&fixture, (const uint32_t[]){1, 2, 3});
  push(&fixture, 0, 0);
  for (unsigned i = 0; i < 1000; i++) { /* alone for a long time */
    push(&fixture, 0, i);
    assert_int_equal(serve_one(&fixture, cost_ns), 0);
  }
  unsigned late = 0;
  push(&fixture, 1, 0);
  push(&fixture, 1, 1);
  for (unsigned i = 0; i < 20; i++) {
    size_t lane = serve_one(&fixture, cost_ns);
    push(&fixture, lane, i);
    late += lane == 1;
  }
  assert_in_range(late, 10, 11);
  close_fixture(&fixture);
}

/* ---- products that have several turns */

static struct queue_job *begin_turns(struct fixture *fixture, uint64_t tag) {
  struct queue_job *job = pop(fixture);
  assert_non_null(job);
  assert_int_equal(job->tag, tag);
  queue_return(&fixture->queue, job);
  return job;
}

static void expect_turn(struct fixture *fixture, struct queue_job *job, bool more) {
  assert_ptr_equal(queue_front(&fixture->queue), job);
  queue_resume(&fixture->queue, job);
  if (more)
    queue_return(&fixture->queue, job);
  else
    queue_release(job);
}

static void one_under_way_has_turns_like_others(void **state) {
  (void)state;
  struct fixture fixture;
  open_fixture(&fixture);
  push(&fixture, 0, 1);
  push(&fixture, 0, 2);
  struct queue_job *job = begin_turns(&fixture, 1);
  assert_int_equal(fixture.queue.under_way, 1);
  expect_turn(&fixture, job, true); /* alone, and ahead of what waits behind it */
  push(&fixture, 1, 10);
  push(&fixture, 1, 11);
  expect_turn(&fixture, job, true);
  expect_pop(&fixture, 10);
  expect_turn(&fixture, job, true);
  push_rows(&fixture, 2, 20, RING_PRIORITY_URGENT, 1);
  expect_pop(&fixture, 20);
  expect_pop(&fixture, 11);
  expect_turn(&fixture, job, false);
  expect_pop(&fixture, 2);
  assert_null(queue_front(&fixture.queue));
  assert_int_equal(fixture.queue.under_way, 0);
  close_fixture(&fixture);
}

static void one_under_way_is_found_and_not_taken(void **state) {
  (void)state;
  struct fixture fixture;
  open_for(&fixture, (const uint32_t[]){1, 2, 1});
  push_rows(&fixture, 0, 1, RING_PRIORITY_BACKGROUND, 1);
  struct queue_job *later = begin_turns(&fixture, 1);
  assert_ptr_equal(queue_any_under_way(&fixture.queue, later), later);
  push(&fixture, 1, 2);
  struct queue_job *sooner = begin_turns(&fixture, 2);
  push(&fixture, 2, 3);
  struct queue_job *waits = queue_find(&fixture.lanes[2], 3);
  assert_ptr_equal(queue_any_under_way(&fixture.queue, waits), sooner); /* the class that goes first */
  assert_ptr_equal(queue_any_under_way(&fixture.queue, later), later);  /* its user's own */
  assert_int_equal(queue_under_way_of(waits), 0);
  assert_int_equal(queue_under_way_of(later), 1);
  assert_ptr_equal(queue_find(&fixture.lanes[0], 1), later);
  assert_null(queue_any(&fixture.lanes[0]));
  queue_resume(&fixture.queue, sooner);
  queue_release(sooner);
  assert_ptr_equal(queue_any_under_way(&fixture.queue, waits), later);
  expect_pop(&fixture, 3);
  queue_resume(&fixture.queue, later);
  assert_null(queue_any_under_way(&fixture.queue, later));
  queue_release(later);
  close_fixture(&fixture);
}

/* What cannot begin yet does not stand in the way of a user's other sessions. */
static void a_turn_can_be_passed(void **state) {
  (void)state;
  struct fixture fixture;
  open_for(&fixture, (const uint32_t[]){1, 1, 2});
  push(&fixture, 0, 1);
  push(&fixture, 1, 2);
  struct queue_job *front = queue_front(&fixture.queue);
  assert_int_equal(front->tag, 1);
  queue_pass(&fixture.queue, front);
  expect_pop(&fixture, 2);
  expect_pop(&fixture, 1);
  close_fixture(&fixture);
}

static void late_ones_are_found_wherever_they_wait(void **state) {
  (void)state;
  struct fixture fixture;
  open_for(&fixture, (const uint32_t[]){1, 2, 3});
  push(&fixture, 0, 1);
  push(&fixture, 1, 2);
  struct queue_job *late = push_until(&fixture, 1, 3, RING_PRIORITY_BACKGROUND, 100);
  assert_int_equal(fixture.queue.timed, 1);
  assert_null(queue_late(&fixture.queue, 99));
  assert_ptr_equal(queue_late(&fixture.queue, 100), late);
  queue_take(&fixture.queue, late);
  queue_release(late);
  assert_null(queue_late(&fixture.queue, 100));
  assert_int_equal(fixture.queue.timed, 0);
  expect_pop(&fixture, 1);
  expect_pop(&fixture, 2);
  close_fixture(&fixture);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(users_share_and_not_sessions),
      cmocka_unit_test(long_products_are_not_more),
      cmocka_unit_test(a_flood_costs_a_factor),
      cmocka_unit_test(nothing_is_saved_up),
      cmocka_unit_test(one_under_way_has_turns_like_others),
      cmocka_unit_test(one_under_way_is_found_and_not_taken),
      cmocka_unit_test(a_turn_can_be_passed),
      cmocka_unit_test(late_ones_are_found_wherever_they_wait),
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
      cmocka_unit_test(rows_of_several_sessions_go_together),
      cmocka_unit_test(what_differs_goes_apart),
      cmocka_unit_test(the_same_bias_goes_together),
      cmocka_unit_test(a_large_job_goes_alone),
      cmocka_unit_test(a_batch_is_shared_out_evenly),
      cmocka_unit_test(who_is_late_does_not_ride),
      cmocka_unit_test(a_gathering_can_be_undone),
      cmocka_unit_test(held_jobs_have_no_turn),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
