/* The policy by which workers that died are replaced. */
#include "daemon/supervisor/workers/restarts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { LONGEST = 64000, MOST = 5 };

static uint64_t die(struct restarts *restarts, uint64_t now_ms, uint32_t random) {
  return restarts_pause_ms(restarts, MOST, LONGEST, now_ms, random);
}

static void the_first_ones_are_replaced_at_once(void **state) {
  struct restarts restarts = {0};
  for (uint64_t i = 0; i < MOST; i++) {
    assert_true(restarts_at_once(&restarts, MOST, 1000 + i));
    assert_int_equal(die(&restarts, 1000 + i, 0), 0);
  }
  assert_false(restarts_at_once(&restarts, MOST, 1010));
  assert_true(die(&restarts, 1010, 0) > 0);
}

static void few_a_minute_are_never_paused_for(void **state) {
  struct restarts restarts = {0};
  for (uint64_t i = 0; i < 1000; i++)
    assert_int_equal(die(&restarts, 1000 + i * 15000, 0), 0);
}

static void pauses_double_up_to_the_longest(void **state) {
  struct restarts restarts = {0};
  uint64_t expected = LONGEST / 64, now = 1000;
  for (int i = 0; i < MOST; i++)
    (void)die(&restarts, now, 0);
  for (int i = 0; i < 100; i++) {
    struct restarts other = restarts;
    uint64_t least = die(&other, now, 0), most = die(&restarts, now, UINT32_MAX);
    assert_int_equal(least, expected / 2);
    assert_int_equal(most, expected - 1);
    expected = expected < LONGEST ? expected * 2 : LONGEST;
    now += most + 1;
  }
}

/* However long it took to fail: only what has served counts as well. */
static void one_that_never_serves_stays_paused(void **state) {
  struct restarts restarts = {0};
  uint64_t now = 1000;
  for (int i = 0; i < 50; i++, now += 3600000)
    if (i == 0)
      for (int j = 0; j < MOST; j++)
        assert_int_equal(die(&restarts, now, 0), 0);
    else
      assert_true(die(&restarts, now - 3599990, 0) > 0);
  assert_false(restarts_at_once(&restarts, MOST, now + 3600000));
}

static void one_that_has_served_for_a_minute_is_well(void **state) {
  struct restarts restarts = {0};
  for (int i = 0; i <= MOST; i++)
    (void)die(&restarts, 1000, 0);
  restarts_served(&restarts, 3000);
  assert_false(restarts_at_once(&restarts, MOST, 63000));
  struct restarts soon = restarts;
  assert_true(die(&soon, 63000, 0) > 0);
  assert_true(restarts_at_once(&restarts, MOST, 63001));
  assert_int_equal(die(&restarts, 63001, 0), 0);
  assert_int_equal(restarts.recent, 1);
}

static void forgotten_deaths_do_not_count(void **state) {
  struct restarts restarts = {0};
  for (int i = 0; i < 20; i++)
    (void)die(&restarts, 1000, 0);
  restarts_forget(&restarts);
  assert_int_equal(die(&restarts, 1001, 0), 0);
}

static void none_at_once_is_a_pause_each_time(void **state) {
  struct restarts restarts = {0};
  assert_false(restarts_at_once(&restarts, 0, 1000));
  assert_int_equal(restarts_pause_ms(&restarts, 0, 1000, 1000, 0), 1000 / 64 / 2);
  assert_int_equal(restarts_pause_ms(&restarts, 0, 1, 1000, 0), 1); /* never nothing */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_first_ones_are_replaced_at_once),      cmocka_unit_test(few_a_minute_are_never_paused_for),
      cmocka_unit_test(pauses_double_up_to_the_longest),          cmocka_unit_test(one_that_never_serves_stays_paused),
      cmocka_unit_test(one_that_has_served_for_a_minute_is_well), cmocka_unit_test(forgotten_deaths_do_not_count),
      cmocka_unit_test(none_at_once_is_a_pause_each_time),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
