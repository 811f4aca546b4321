/* Which role a peer has: by its user and all of its groups, as the options say. */
#include "daemon/supervisor/net/role.h"
#include "tests/support/messages/peer.h"

#include <grp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static struct config config;
static struct error failure;

static void a_role_comes_from_user_and_groups(void **state) {
  gid_t groups[] = {1, 2, 30};
  const struct role_rules rules = {.admins = true, .use = 2, .admin = 30};
  const struct role_rules open_rules = {.everybody = true};
  struct role_peer peer = {.uid = 1000, .groups = groups, .group_count = 3};
  assert_int_equal(role_of(&rules, &peer, 999), ROLE_ADMIN);
  peer.group_count = 2;
  assert_int_equal(role_of(&rules, &peer, 999), ROLE_USER);
  peer.group_count = 1;
  assert_int_equal(role_of(&rules, &peer, 999), ROLE_NONE);
  assert_int_equal(role_of(&rules, &peer, 1000), ROLE_ADMIN);
  assert_int_equal(role_of(&open_rules, &peer, 999), ROLE_USER);
  peer.group_count = 3; /* group 0 is nobody's by not being set */
  groups[2] = 0;
  assert_int_equal(role_of(&open_rules, &peer, 999), ROLE_USER);
  peer.uid = 0;
  assert_int_equal(role_of(&rules, &peer, 999), ROLE_ADMIN);
}

static void groups_are_found_by_name_and_number(void **state) {
  struct role_rules rules;
  config_defaults(&config);
  assert_int_equal(role_rules_make(&config, &rules, &failure), STATUS_OK);
  assert_true(rules.everybody);
  assert_false(rules.admins);
  assert_int_equal(config_set(&config, "use_group", "root", &failure), STATUS_OK);
  assert_int_equal(config_set(&config, "admin_group", "777", &failure), STATUS_OK);
  assert_int_equal(role_rules_make(&config, &rules, &failure), STATUS_OK);
  assert_false(rules.everybody);
  assert_int_equal(rules.use, 0);
  assert_true(rules.admins);
  assert_int_equal(rules.admin, 777);
  assert_int_equal(config_set(&config, "admin_group", "no such group", &failure), STATUS_OK);
  assert_int_equal(role_rules_make(&config, &rules, &failure), STATUS_INVALID);
  assert_non_null(strstr(failure.text, "no such group"));
}

static void users_of_legacy_handles_are_named(void **state) {
  struct role_rules rules;
  config_defaults(&config);
  assert_int_equal(role_rules_make(&config, &rules, &failure), STATUS_OK);
  assert_false(role_may_ipc(&rules, 0));
  assert_int_equal(config_set(&config, "ipc_users", "777, root,65534", &failure), STATUS_OK);
  assert_int_equal(role_rules_make(&config, &rules, &failure), STATUS_OK);
  assert_true(role_may_ipc(&rules, 0) && role_may_ipc(&rules, 777) && role_may_ipc(&rules, 65534));
  assert_false(role_may_ipc(&rules, 778));
  assert_int_equal(config_set(&config, "ipc_users", "root, nobody of that name", &failure), STATUS_OK);
  assert_int_equal(role_rules_make(&config, &rules, &failure), STATUS_INVALID);
  assert_non_null(strstr(failure.text, "ipc_users"));
}

static void who_borrows_is_named(void **state) {
  struct role_rules rules;
  gid_t groups[] = {100, 777};
  const struct role_peer root = {.uid = 0}, gemmd = {.uid = 55}, stranger = {.uid = 60},
                         member = {.uid = 60, .groups = groups, .group_count = 2};
  config_defaults(&config);
  assert_int_equal(role_rules_make(&config, &rules, &failure), STATUS_OK);
  assert_true(role_may_borrow(&rules, &gemmd, 55));
  assert_false(role_may_borrow(&rules, &member, 55) || role_may_borrow(&rules, &root, 55));
  assert_int_equal(config_set(&config, "direct", "777", &failure), STATUS_OK);
  assert_int_equal(role_rules_make(&config, &rules, &failure), STATUS_OK);
  assert_true(role_may_borrow(&rules, &gemmd, 55) && role_may_borrow(&rules, &member, 55));
  assert_false(role_may_borrow(&rules, &stranger, 55) || role_may_borrow(&rules, &root, 55));
  assert_int_equal(config_set(&config, "direct", "no group of that name", &failure), STATUS_OK);
  assert_int_equal(role_rules_make(&config, &rules, &failure), STATUS_INVALID);
  assert_non_null(strstr(failure.text, "direct"));
}

static void every_group_of_a_peer_is_read(void **state) {
  enum { MANY = 200 };
  gid_t groups[MANY];
  int pair[2];
  if (geteuid() != 0)
    skip();
  for (gid_t i = 0; i < MANY; i++)
    groups[i] = 5000 + i;
  pid_t pid = fork();
  if (pid == 0) { /* the groups that count are those when the pair is made */
    struct role_peer peer;
    if (setgroups(MANY, groups) != 0 || setgid(4999) != 0 || setuid(1234) != 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0 || role_peer_read(pair[0], &peer, &failure) != STATUS_OK)
      _exit(1);
    bool first = false, last = false, own = false;
    for (size_t i = 0; i < peer.group_count; i++) {
      first |= peer.groups[i] == 5000;
      last |= peer.groups[i] == 5000 + MANY - 1;
      own |= peer.groups[i] == 4999;
    }
    bool right = peer.uid == 1234 && peer.pid == getpid() && peer.group_count == MANY + 1 && first && last && own;
    role_peer_free(&peer);
    exit(right ? 0 : 2);
  }
  assert_int_equal(peer_wait(pid), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_role_comes_from_user_and_groups), cmocka_unit_test(groups_are_found_by_name_and_number),
      cmocka_unit_test(users_of_legacy_handles_are_named), cmocka_unit_test(who_borrows_is_named),
      cmocka_unit_test(every_group_of_a_peer_is_read),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
