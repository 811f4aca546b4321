/* How long an engine sleeps while products are on the device. */
#include "daemon/worker/serve/nap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { US = 1000, BEGAN = 1000 * US };

/* What is slept `at` microseconds behind the beginning, where the end is expected at `expected`. */
static uint64_t nap(uint64_t at, uint64_t expected, uint64_t alert) {
  const struct nap_wait wait = {.began_ns = BEGAN,
                                .now_ns = BEGAN + at * US,
                                .expected_ns = expected > 0 ? BEGAN + expected * US : 0,
                                .alert_ns = alert * US};
  return nap_choose(&wait);
}

static void test_an_eighth_of_the_wait(void **state) {
  assert_int_equal(nap(0, 0, 30), 5 * US);
  assert_int_equal(nap(80, 0, 30), 10 * US);
  assert_int_equal(nap(800, 0, 30), 100 * US);
  assert_int_equal(nap(80000, 0, 30), 1000 * US);
}

static void test_awake_around_the_expected_end(void **state) {
  assert_int_equal(nap(80, 200, 30), 10 * US);
  assert_int_equal(nap(165, 200, 30), 5 * US); /* no longer than until the alert */
  assert_int_equal(nap(168, 200, 30), 2 * US);
  assert_int_equal(nap(170, 200, 30), 0);
  assert_int_equal(nap(229, 200, 30), 0);
  assert_int_equal(nap(10, 20, 30), 0);
}

static void test_late(void **state) {
  assert_int_equal(nap(230, 200, 30), 5 * US);
  assert_int_equal(nap(1000, 200, 30), 100 * US);
  assert_int_equal(nap(80200, 200, 30), 1000 * US);
}

/* Who may not spin sleeps as if nobody knew. */
static void test_no_alert(void **state) {
  assert_int_equal(nap(80, 80, 0), 10 * US);
  assert_int_equal(nap(800, 200, 0), 100 * US);
}

/* The engine had something else to do until long behind the time: the wait itself counts. */
static void test_expected_before_the_wait(void **state) {
  const struct nap_wait wait = {.began_ns = BEGAN, .now_ns = BEGAN + 8 * US, .expected_ns = US, .alert_ns = 30 * US};
  assert_int_equal(nap_choose(&wait), 5 * US);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_an_eighth_of_the_wait),
      cmocka_unit_test(test_awake_around_the_expected_end),
      cmocka_unit_test(test_late),
      cmocka_unit_test(test_no_alert),
      cmocka_unit_test(test_expected_before_the_wait),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
