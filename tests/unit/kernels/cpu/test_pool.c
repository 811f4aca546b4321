#include "kernels/cpu/pool.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MOST = 9 };

struct counted {
  int runs[MOST]; /* of each part; every part has its own */
  int parts;
};

static void count_part(void *context, int part, int parts) {
  struct counted *counted = context;
  counted->runs[part]++;
  if (part == 0) {
    counted->parts = parts;
  }
}

/* Everything that a part wrote is there when run returns, round after round. */
static void test_every_part_once(void **state) {
  for (int threads = 1; threads <= MOST; threads++) {
    struct cpu_pool *pool;
    struct error error;
    struct counted counted = {0};
    assert_int_equal(cpu_pool_create(threads, NULL, &pool, &error), STATUS_OK);
    assert_int_equal(cpu_pool_threads(pool), threads);
    for (int round = 1; round <= 300; round++) {
      cpu_pool_run(pool, threads, count_part, &counted);
      assert_int_equal(counted.parts, threads);
      for (int part = 0; part < MOST; part++) {
        assert_int_equal(counted.runs[part], part < threads ? round : 0);
      }
    }
    cpu_pool_destroy(pool);
  }
}

/* Who has no part is not called, and is there again when it has one. */
static void test_fewer_parts_than_threads(void **state) {
  struct cpu_pool *pool;
  struct error error;
  struct counted counted = {0};
  int expected[MOST] = {0};
  assert_int_equal(cpu_pool_create(MOST, NULL, &pool, &error), STATUS_OK);
  for (int round = 0; round < 2000; round++) {
    int parts = round % 500 < 250 ? 1 + round % 3 : 1 + round % MOST;
    cpu_pool_run(pool, parts, count_part, &counted);
    assert_int_equal(counted.parts, parts);
    for (int part = 0; part < MOST; part++) {
      expected[part] += part < parts;
      assert_int_equal(counted.runs[part], expected[part]);
    }
  }
  cpu_pool_destroy(pool);
}

/* Parts run at the same time: each waits for all others to have begun. */
static void meet(void *context, int part, int parts) {
  atomic_int *begun = context;
  atomic_fetch_add(begun, 1);
  while (atomic_load(begun) < parts) {
    sched_yield();
  }
}

static void test_parts_meet(void **state) {
  struct cpu_pool *pool;
  struct error error;
  assert_int_equal(cpu_pool_create(5, NULL, &pool, &error), STATUS_OK);
  for (int round = 0; round < 50; round++) {
    atomic_int begun = 0;
    cpu_pool_run(pool, 5, meet, &begun);
    assert_int_equal(begun, 5);
  }
  cpu_pool_destroy(pool);
}

struct meetings {
  struct cpu_pool *pool;
  int written[MOST]; /* by each part, before each meeting */
  atomic_int wrong;
};

/* Between two meetings every part sees what all of them wrote before the first. */
static void meet_often(void *context, int part, int parts) {
  struct meetings *meetings = context;
  for (int round = 1; round <= 100; round++) {
    meetings->written[part] = round;
    cpu_pool_meet(meetings->pool);
    for (int other = 0; other < parts; other++) {
      atomic_fetch_add(&meetings->wrong, meetings->written[other] != round);
    }
    cpu_pool_meet(meetings->pool);
  }
}

static void test_meetings(void **state) {
  struct error error;
  for (int threads = 1; threads <= MOST; threads += 2) {
    struct meetings meetings = {0};
    assert_int_equal(cpu_pool_create(threads, NULL, &meetings.pool, &error), STATUS_OK);
    cpu_pool_run(meetings.pool, threads, meet_often, &meetings);
    cpu_pool_run(meetings.pool, (threads + 1) / 2, meet_often, &meetings);
    cpu_pool_run(meetings.pool, threads, meet_often, &meetings);
    assert_int_equal(meetings.wrong, 0);
    cpu_pool_destroy(meetings.pool);
  }
}

static void test_unused_pool_ends(void **state) {
  struct cpu_pool *pool;
  struct error error;
  for (int i = 0; i < 20; i++) {
    assert_int_equal(cpu_pool_create(4, NULL, &pool, &error), STATUS_OK);
    cpu_pool_destroy(pool);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_part_once),  cmocka_unit_test(test_fewer_parts_than_threads),
      cmocka_unit_test(test_parts_meet),       cmocka_unit_test(test_meetings),
      cmocka_unit_test(test_unused_pool_ends),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
