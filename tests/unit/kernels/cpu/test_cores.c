#include "kernels/cpu/cores.h"
#include "kernels/cpu/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Two NUMA nodes, four cores each, two processors a core: numbers 0, 1 are the first core's. */
#define MACHINE "numa:2 core:4 pu:2"

static void expect(const char *pin, int device, int count, int first, int step) {
  struct cpu_cores cores;
  struct error error = {0};
  assert_int_equal(cpu_cores_choose(pin, device, MACHINE, &cores, &error), STATUS_OK);
  assert_int_equal(cores.count, count);
  for (int i = 0; i < count; i++) {
    assert_int_equal(cores.processors[i], first + i * step);
  }
  assert_int_equal(cores.at_home, strcmp(pin, "nodes") == 0);
}

static void test_choose(void **state) {
  expect("", 0, 0, 0, 0);
  expect("cores", 0, 8, 0, 2);
  expect("cores", 5, 8, 0, 2);
  expect("nodes", 0, 4, 0, 2);
  expect("nodes", 1, 4, 8, 2);
  expect("nodes", 2, 4, 0, 2); /* the third worker shares the first node */
  expect("3-6", 0, 4, 3, 1);
  expect("15", 0, 1, 15, 1);
}

/* A node's home is all of its processors, both of each core. */
static void test_home(void **state) {
  struct cpu_cores cores;
  struct error error = {0};
  assert_int_equal(cpu_cores_choose("nodes", 1, MACHINE, &cores, &error), STATUS_OK);
  assert_int_equal(CPU_COUNT(&cores.home), 8);
  assert_true(CPU_ISSET(8, &cores.home) && CPU_ISSET(15, &cores.home));
}

static void test_refusals(void **state) {
  const char *wrong[] = {"core", "0-", "0;1", "all", "16", "0-99"};
  for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
    struct cpu_cores cores;
    struct error error = {0};
    assert_int_equal(cpu_cores_choose(wrong[i], 0, MACHINE, &cores, &error), STATUS_INVALID);
    assert_non_null(strstr(error.text, wrong[i]));
  }
}

struct seen {
  cpu_set_t sets[2]; /* by part */
};

static void look(void *context, int part, int parts) {
  struct seen *seen = context;
  sched_getaffinity(0, sizeof(seen->sets[part]), &seen->sets[part]);
}

/* Each thread of a pool, its caller included, stays where it was put, from the first task on. */
static void test_pinned(void **state) {
  cpu_set_t before;
  struct cpu_pool *pool;
  struct cpu_cores cores;
  struct error error = {0};
  struct seen seen;
  sched_getaffinity(0, sizeof(before), &before);
  assert_int_equal(cpu_cores_choose("cores", 0, NULL, &cores, &error), STATUS_OK);
  assert_in_range(cores.count, 1, CPU_COUNT(&before));
  int threads = cores.count > 1 ? 2 : 1;
  assert_int_equal(cpu_pool_create(threads, &cores, &pool, &error), STATUS_OK);
  cpu_pool_run(pool, threads, look, &seen);
  cpu_pool_destroy(pool);
  sched_setaffinity(0, sizeof(before), &before);
  for (int i = 0; i < threads; i++) {
    assert_int_equal(CPU_COUNT(&seen.sets[i]), 1);
    assert_true(CPU_ISSET(cores.processors[i], &seen.sets[i]));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_choose),
      cmocka_unit_test(test_home),
      cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_pinned),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
