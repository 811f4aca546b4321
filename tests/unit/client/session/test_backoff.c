#include "client/session/backoff.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { MS = 1000000 };
static const uint32_t middle = 1u << 31;

static void pauses_double_up_to_a_half_second(void **state) {
  static const int64_t expected_ms[] = {5, 10, 20, 40, 80, 160, 320, 500, 500};
  for (uint32_t i = 0; i < sizeof expected_ms / sizeof *expected_ms; i++)
    assert_int_equal(backoff_ns(i + 1, middle), expected_ms[i] * MS);
  assert_int_equal(backoff_ns(UINT32_MAX, middle), 500 * MS);
}

static void clients_do_not_come_at_the_same_moment(void **state) {
  assert_int_equal(backoff_ns(1, 0), 5 * MS / 2);
  assert_in_range(backoff_ns(1, UINT32_MAX), 15 * MS / 2 - 1, 15 * MS / 2);
  assert_int_equal(backoff_ns(20, 0), 250 * MS);
  assert_in_range(backoff_ns(20, UINT32_MAX), 750 * MS - 1, 750 * MS);
  for (uint32_t i = 1; i < 16; i++)
    assert_true(backoff_ns(3, i << 28) > backoff_ns(3, (i - 1) << 28));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pauses_double_up_to_a_half_second),
      cmocka_unit_test(clients_do_not_come_at_the_same_moment),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
