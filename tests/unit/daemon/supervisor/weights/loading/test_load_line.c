/* Whose load is next. */
#include "daemon/supervisor/weights/loading/load_line.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { USERS = 3, LOADS = 32 };

static struct load_line line;
static uint64_t turns[USERS];
static struct load_entry entries[USERS][LOADS];

static void begin(void) {
  load_line_init(&line);
  for (int user = 0; user < USERS; user++) {
    turns[user] = 0;
    for (int load = 0; load < LOADS; load++)
      entries[user][load] = (struct load_entry){.turn = &turns[user]};
  }
}

static void add(int user, int load, bool small) {
  entries[user][load].small = small;
  load_line_add(&line, &entries[user][load]);
}

static void nobody_waits(void **state) {
  begin();
  assert_null(load_line_next(&line, false));
  assert_null(load_line_next(&line, true));
}

static void one_user_is_served_in_order(void **state) {
  begin();
  for (int load = 0; load < LOADS; load++)
    add(0, load, load % 3 == 0);
  for (int load = 0; load < LOADS; load++)
    assert_ptr_equal(load_line_next(&line, false), &entries[0][load]);
  assert_null(load_line_next(&line, false));
}

/* One user's thirty-two loads cost another one turn. */
static void users_take_turns(void **state) {
  begin();
  for (int load = 0; load < LOADS; load++)
    add(0, load, false);
  assert_ptr_equal(load_line_next(&line, false), &entries[0][0]);
  assert_ptr_equal(load_line_next(&line, false), &entries[0][1]);
  add(1, 0, false);
  add(1, 1, false);
  add(2, 0, false);
  const struct load_entry *order[] = {&entries[1][0], &entries[2][0], &entries[0][2],
                                      &entries[1][1], &entries[0][3], &entries[0][4]};
  for (int i = 0; i < 6; i++)
    assert_ptr_equal(load_line_next(&line, false), order[i]);
}

static void small_ones_pass(void **state) {
  begin();
  add(0, 0, false);
  add(0, 1, false);
  add(0, 2, true);
  add(1, 0, true);
  assert_ptr_equal(load_line_next(&line, true), &entries[0][2]);
  assert_ptr_equal(load_line_next(&line, true), &entries[1][0]);
  assert_null(load_line_next(&line, true));
  assert_ptr_equal(load_line_next(&line, false), &entries[0][0]);
}

/* A flood of small ones holds up nobody's small ones for more than a turn. */
static void small_ones_take_turns(void **state) {
  begin();
  for (int load = 0; load < LOADS; load++)
    add(0, load, true);
  assert_ptr_equal(load_line_next(&line, true), &entries[0][0]);
  add(1, 0, true);
  assert_ptr_equal(load_line_next(&line, true), &entries[1][0]);
  assert_ptr_equal(load_line_next(&line, true), &entries[0][1]);
}

static void one_that_leaves_is_passed_over(void **state) {
  begin();
  add(0, 0, false);
  add(0, 1, false);
  load_line_remove(&line, &entries[0][0]);
  assert_ptr_equal(load_line_next(&line, false), &entries[0][1]);
  assert_null(load_line_next(&line, false));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nobody_waits),          cmocka_unit_test(one_user_is_served_in_order),
      cmocka_unit_test(users_take_turns),      cmocka_unit_test(small_ones_pass),
      cmocka_unit_test(small_ones_take_turns), cmocka_unit_test(one_that_leaves_is_passed_over),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
