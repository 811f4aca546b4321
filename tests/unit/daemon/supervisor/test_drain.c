/* drain: what is there is served to its end, and nobody new is let in. */
#include "tests/support/messages/users.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void gemmd_ends_with_its_last_session(void **state) {
  const struct message_empty nothing = {.reserved = 0};
  life.config.use_group[0] = life.config.admin_group[0] = '\0';
  life_begin();
  int old = peer_connect(&life.config), asker = peer_connect(&life.config);
  peer_hello(old);
  peer_hello(asker);
  assert_int_equal(users_load(old, "a", 1, MODE_DEFAULT, NULL), STATUS_OK);
  assert_int_equal(peer_ask(asker, COMMAND_drain, &nothing, NULL, 0, NULL, &life.failure), STATUS_OK);
  assert_int_equal(users_load(old, "b", 1, MODE_DEFAULT, NULL), STATUS_SHUTTING_DOWN);
  peer_arena(old, 1); /* what is there is served to its end */
  assert_int_equal(life_ask_name(old, COMMAND_weight_open, "a", NULL), STATUS_OK);
  assert_int_equal(waitpid(life.supervisor, NULL, WNOHANG), 0);
  close(old);
  peer_expect_end(asker);
  assert_int_equal(peer_wait(life.supervisor), 0);
}

static void nobody_new_gets_in(void) {
  EXPECT(users_greet(peer_connect(&life.config)) == STATUS_SHUTTING_DOWN);
}

static void a_draining_gemmd_takes_nobody_new(void **state) {
  const struct message_empty nothing = {.reserved = 0};
  if (geteuid() != 0)
    skip();
  life_begin();
  int old = peer_connect(&life.config);
  peer_hello(old);
  int asker = peer_connect(&life.config);
  peer_hello(asker);
  assert_int_equal(peer_ask(asker, COMMAND_drain, &nothing, NULL, 0, NULL, &life.failure), STATUS_OK);
  users_play(USERS_ALICE, USERS_USE, nobody_new_gets_in);
  close(old);
  assert_int_equal(peer_wait(life.supervisor), 0);
}

#define USERS(test) cmocka_unit_test_setup_teardown(test, users_configure, life_clean)

int main(int count, char **words) {
  peer_main(count, words);
  const struct CMUnitTest tests[] = {
      USERS(gemmd_ends_with_its_last_session),
      USERS(a_draining_gemmd_takes_nobody_new),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
