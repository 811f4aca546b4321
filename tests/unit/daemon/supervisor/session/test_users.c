/* What one user may have, and how many messages a second it may send. */
#include "daemon/supervisor/session/users.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { ALICE = 54331, BOB = 54332 };

static struct config config;
static struct error failure;

static void messages_over_the_rate_wait(void **state) {
  struct users users;
  config_defaults(&config);
  config.user_messages_per_s = 10;
  users_init(&users, &config);
  struct user *alice = users_enter(&users, ALICE, false, 1000);
  assert_ptr_equal(users_enter(&users, ALICE, false, 1000), alice);
  for (int i = 0; i < 12; i++)
    assert_int_equal(user_spend_message(&users, alice, 0, 1000), 0);
  assert_int_equal(user_spend_message(&users, alice, 7, 1000), 0); /* counts as eight */
  assert_int_equal(user_spend_message(&users, alice, 0, 1000), 101);
  assert_int_equal(user_spend_message(&users, alice, 0, 1000),
                   201); /* from a second session: it waits behind the first */
  assert_int_equal(user_spend_message(&users, alice, 0, 1201), 100);
  users_leave(&users, alice, 1201);
  users_leave(&users, alice, 1201);
  assert_ptr_equal(users_enter(&users, ALICE, false, 1201), alice); /* to leave does not forgive the debt */
  assert_int_equal(user_spend_message(&users, alice, 0, 1201), 200);
  users_leave(&users, alice, 9000);
  assert_int_equal(users.count, 0);
  struct user *root = users_enter(&users, 0, true, 9000);
  for (int i = 0; i < 1000; i++)
    assert_int_equal(user_spend_message(&users, root, 0, 9000), 0);
  users_free(&users);
}

static void caps_are_a_users_and_not_an_admins(void **state) {
  struct users users;
  config_defaults(&config);
  config.user_sessions_max = 2;
  config.user_loads_max = 1;
  config.user_arena_bytes_max = 1000;
  config.user_requests_max = 64;
  config.user_device_bytes_max = 500;
  config.user_names_max = 3;
  users_init(&users, &config);
  struct user *alice = users_enter(&users, ALICE, false, 0), *bob = users_enter(&users, BOB, false, 0);
  struct user *root = users_enter(&users, 0, true, 0);
  assert_int_equal(user_add_session(&users, alice, &failure), STATUS_OK);
  assert_int_equal(user_add_session(&users, alice, &failure), STATUS_OK);
  assert_int_equal(user_add_session(&users, alice, &failure), STATUS_BUSY);
  assert_non_null(strstr(failure.text, "may have 2 sessions, has 2"));
  assert_int_equal(user_add_session(&users, bob, &failure), STATUS_OK);
  assert_int_equal(user_add_load(&users, alice, &failure), STATUS_OK);
  assert_int_equal(user_add_load(&users, alice, &failure), STATUS_BUSY);
  assert_int_equal(user_add_arena(&users, alice, 1000, 64, &failure), STATUS_OK);
  assert_int_equal(user_add_arena(&users, alice, 1, 0, &failure), STATUS_BUSY);
  assert_int_equal(user_add_arena(&users, alice, 0, 1, &failure), STATUS_BUSY);
  assert_int_equal(alice->arena_bytes, 1000); /* what was refused is not counted */
  assert_int_equal(alice->entries, 64);
  assert_int_equal(user_add_arena(&users, bob, UINT64_MAX, 1, &failure), STATUS_BUSY);
  assert_int_equal(user_check_device(&users, alice, 400, 100, &failure), STATUS_OK);
  assert_int_equal(user_check_device(&users, alice, 400, 101, &failure), STATUS_BUSY);
  assert_int_equal(user_check_name(&users, alice, 2, &failure), STATUS_OK);
  assert_int_equal(user_check_name(&users, alice, 3, &failure), STATUS_BUSY);
  assert_int_equal(user_check_name(&users, root, 3, &failure), STATUS_OK);
  for (int i = 0; i < 5; i++)
    assert_int_equal(user_add_session(&users, root, &failure), STATUS_OK);
  assert_int_equal(user_add_arena(&users, root, 5000, 5000, &failure), STATUS_OK);
  config.user_sessions_max = 0;
  assert_int_equal(user_add_session(&users, alice, &failure), STATUS_OK);
  users_free(&users);
}

static void lines_of_the_log_are_a_users(void **state) {
  struct users users;
  uint32_t left_out;
  config_defaults(&config);
  users_init(&users, &config);
  struct user *alice = users_enter(&users, ALICE, false, 20000), *bob = users_enter(&users, BOB, false, 20000);
  int lines = 0;
  for (int i = 0; i < 70; i++)
    lines += user_may_log(alice, 20000, &left_out);
  assert_int_equal(lines, 50);
  assert_true(user_may_log(bob, 20000, &left_out));
  assert_false(user_may_log(alice, 29999, &left_out));
  assert_true(user_may_log(alice, 30000, &left_out)); /* ten seconds later, and says how many there would have been */
  assert_int_equal(left_out, 21);
  assert_true(user_may_log(alice, 30000, &left_out));
  assert_int_equal(left_out, 0);
  users_free(&users);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(messages_over_the_rate_wait),
      cmocka_unit_test(caps_are_a_users_and_not_an_admins),
      cmocka_unit_test(lines_of_the_log_are_a_users),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
