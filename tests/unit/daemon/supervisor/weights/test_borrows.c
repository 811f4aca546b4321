/* What a session has borrowed, and which slabs it was given. */
#include "daemon/supervisor/weights/borrows.h"
#include "daemon/supervisor/weights/catalog.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct error failure;

static void a_borrow_is_given_back_once(void **state) {
  struct borrows borrows = {.count = 0};
  struct catalog_weight first = {.id = 1}, second = {.id = 2};
  uint32_t a, b, again;
  assert_int_equal(borrows_add(&borrows, &first, &a, &failure), STATUS_OK);
  assert_int_equal(borrows_add(&borrows, &second, &b, &failure), STATUS_OK);
  assert_int_equal(borrows_add(&borrows, &first, &again, &failure), STATUS_OK);
  assert_true(a != 0 && b != 0 && again != 0 && a != b && a != again && b != again);
  assert_int_equal(borrows_of(&borrows, &first), a);
  assert_ptr_equal(borrows_remove(&borrows, a), &first);
  assert_null(borrows_remove(&borrows, a));
  assert_null(borrows_remove(&borrows, 0));
  assert_int_equal(borrows_of(&borrows, &first), again); /* borrowed twice */
  assert_ptr_equal(borrows_remove(&borrows, again), &first);
  assert_int_equal(borrows_of(&borrows, &first), 0);
  assert_ptr_equal(borrows_remove(&borrows, b), &second);
  assert_int_equal(borrows.count, 0);
  borrows_free(&borrows);
}

static void numbers_are_not_used_again(void **state) {
  struct borrows borrows = {.count = 0};
  struct catalog_weight weight = {.id = 1};
  uint32_t last = 0, id;
  for (int i = 0; i < 100; i++) {
    assert_int_equal(borrows_add(&borrows, &weight, &id, &failure), STATUS_OK);
    assert_true(id > last);
    last = id;
    assert_ptr_equal(borrows_remove(&borrows, id), &weight);
  }
  borrows_free(&borrows);
}

static void there_is_a_limit(void **state) {
  struct borrows borrows = {.count = 0};
  struct catalog_weight weight = {.id = 1};
  uint32_t id;
  for (uint32_t i = 0; i < LIMIT_SESSION_WEIGHTS; i++)
    assert_int_equal(borrows_add(&borrows, &weight, &id, &failure), STATUS_OK);
  assert_int_equal(borrows_add(&borrows, &weight, &id, &failure), STATUS_TOO_LARGE);
  assert_ptr_equal(borrows_remove(&borrows, 7), &weight);
  assert_int_equal(borrows_add(&borrows, &weight, &id, &failure), STATUS_OK);
  borrows_free(&borrows);
}

static void a_slab_is_given_until_it_is_lost(void **state) {
  struct borrows borrows = {.count = 0};
  for (uint32_t slab = 1; slab <= 40; slab++) {
    assert_false(borrows_given(&borrows, slab));
    assert_int_equal(borrows_give(&borrows, slab, &failure), STATUS_OK);
    assert_int_equal(borrows_give(&borrows, slab, &failure), STATUS_OK);
  }
  assert_int_equal(borrows.given_count, 40);
  borrows_lose(&borrows, 1);
  borrows_lose(&borrows, 1);
  borrows_lose(&borrows, 40);
  borrows_lose(&borrows, 99); /* never given */
  assert_false(borrows_given(&borrows, 1));
  assert_false(borrows_given(&borrows, 40));
  for (uint32_t slab = 2; slab < 40; slab++)
    assert_true(borrows_given(&borrows, slab));
  borrows_free(&borrows);
  assert_false(borrows_given(&borrows, 2));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_borrow_is_given_back_once),
      cmocka_unit_test(numbers_are_not_used_again),
      cmocka_unit_test(there_is_a_limit),
      cmocka_unit_test(a_slab_is_given_until_it_is_lost),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
