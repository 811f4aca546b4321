/* Which weights of a model are under way together: their memory has a bound, and none waits for ever. */
#include "client/model/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static bool begins(uint64_t bytes, uint64_t under_way) {
  const struct model_item item = {.bytes = bytes};
  return model_may_begin(&item, under_way);
}

static void test_the_bound_holds(void **state) {
  const uint64_t most = MODEL_BYTES_TOGETHER;
  assert_true(most < (uint64_t)1 << 30);
  assert_true(begins(448 << 20, 448 << 20));
  assert_true(begins(1, most - 1));
  assert_false(begins(2, most - 1));
  assert_false(begins(1, most));
  assert_false(begins(UINT64_MAX, 1));
  assert_false(begins(1, UINT64_MAX));
}

static void test_by_itself_any_begins(void **state) {
  assert_true(begins(0, 0));
  assert_true(begins(UINT64_MAX, 0));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_bound_holds),
      cmocka_unit_test(test_by_itself_any_begins),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
