/* How long a wait spins: bounds, what short and long waits teach, and what one exception does not. */
#include "proto/shm/spin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { MOST = 100000 };

static void begins_with_all_it_may(void **state) {
  struct spin spin;
  spin_init(&spin, MOST);
  assert_int_equal(spin_budget(&spin), MOST);
  spin_init(&spin, 0);
  assert_int_equal(spin_budget(&spin), 0);
  spin_learn(&spin, 1000);
  assert_int_equal(spin_budget(&spin), 0);
  spin_init(&spin, 500); /* less than the least */
  spin_learn(&spin, 0);
  assert_int_equal(spin_budget(&spin), 500);
}

static void short_waits_need_short_spins(void **state) {
  struct spin spin;
  spin_init(&spin, MOST);
  for (int i = 0; i < 100; i++)
    spin_learn(&spin, 40000);
  assert_in_range(spin_budget(&spin), 79000, 81000);
  for (int i = 0; i < 100; i++)
    spin_learn(&spin, 0);
  assert_int_equal(spin_budget(&spin), SPIN_WORTH_NS); /* sleeping would cost as much */
}

static void long_waits_are_slept_through(void **state) {
  struct spin spin;
  spin_init(&spin, MOST);
  for (int i = 0; i < 100; i++)
    spin_learn(&spin, UINT64_MAX / 2);
  assert_int_equal(spin_budget(&spin), SPIN_LEAST_NS);
  int until = 0; /* and forgotten, when waits are short again */
  for (; spin_budget(&spin) != MOST; until++)
    spin_learn(&spin, 10000);
  assert_in_range(until, 1, 20);
}

static void one_pause_is_no_habit(void **state) {
  struct spin spin;
  spin_init(&spin, MOST);
  for (int i = 0; i < 100; i++)
    spin_learn(&spin, 10000);
  spin_learn(&spin, 1000000000);
  assert_int_equal(spin_budget(&spin), MOST);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(begins_with_all_it_may),
      cmocka_unit_test(short_waits_need_short_spins),
      cmocka_unit_test(long_waits_are_slept_through),
      cmocka_unit_test(one_pause_is_no_habit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
