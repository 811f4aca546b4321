/* Who may do what, and how much of it: every command as every role, weights of one user and of all, caps of a user
 * id, the limit on descriptors. Other users are played by processes of this test, which takes root; what needs none
 * runs as anybody. */
#include "daemon/supervisor/role.h"
#include "daemon/supervisor/users.h"
#include "tests/support/peer.h"

#include <grp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { USE_GROUP = 54321, ADMIN_GROUP = 54322, OTHER_GROUP = 54323, ALICE = 54331, BOB = 54332 };

static struct config config;
static pid_t supervisor;
static struct error failure;
static char folder[] = "/tmp/gemmd-test-roles-XXXXXX";

/* ---- roles, pure */

static void a_role_comes_from_user_and_groups(void **state) {
  gid_t groups[] = {1, 2, 30};
  const struct role_rules rules = {.admins = true, .use = 2, .admin = 30};
  const struct role_rules open_rules = {.everybody = true};
  struct role_peer peer = {.uid = 1000, .groups = groups, .group_count = 3};
  (void)state;
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
  (void)state;
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
  (void)state;
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

static void every_group_of_a_peer_is_read(void **state) {
  enum { MANY = 200 };
  gid_t groups[MANY];
  int pair[2];
  (void)state;
  if (geteuid() != 0)
    skip();
  for (gid_t i = 0; i < MANY; i++)
    groups[i] = 5000 + i;
  pid_t pid = fork();
  if (pid == 0) { /* the groups that count are those when the pair is made */
    struct role_peer peer;
    if (setgroups(MANY, groups) != 0 || setgid(4999) != 0 || setuid(ALICE) != 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0 || role_peer_read(pair[0], &peer, &failure) != STATUS_OK)
      _exit(1);
    bool first = false, last = false, own = false;
    for (size_t i = 0; i < peer.group_count; i++) {
      first |= peer.groups[i] == 5000;
      last |= peer.groups[i] == 5000 + MANY - 1;
      own |= peer.groups[i] == 4999;
    }
    bool right = peer.uid == ALICE && peer.pid == getpid() && peer.group_count == MANY + 1 && first && last && own;
    role_peer_free(&peer);
    exit(right ? 0 : 2);
  }
  assert_int_equal(peer_wait(pid), 0);
}

/* ---- caps, pure */

static void messages_over_the_rate_wait(void **state) {
  struct users users;
  (void)state;
  config_defaults(&config);
  config.user_messages_per_s = 10;
  users_init(&users, &config);
  struct user *alice = users_enter(&users, ALICE, false, 1000);
  assert_ptr_equal(users_enter(&users, ALICE, false, 1000), alice);
  for (int i = 0; i < 20; i++)
    assert_int_equal(user_spend_message(&users, alice, 1000), 0);
  assert_int_equal(user_spend_message(&users, alice, 1000), 101);
  assert_int_equal(user_spend_message(&users, alice, 1000), 201); /* from a second session: it waits behind the first */
  assert_int_equal(user_spend_message(&users, alice, 1201), 100);
  users_leave(&users, alice, 1201);
  users_leave(&users, alice, 1201);
  assert_ptr_equal(users_enter(&users, ALICE, false, 1201), alice); /* to leave does not forgive the debt */
  assert_int_equal(user_spend_message(&users, alice, 1201), 200);
  users_leave(&users, alice, 9000);
  assert_int_equal(users.count, 0);
  struct user *root = users_enter(&users, 0, true, 9000);
  for (int i = 0; i < 1000; i++)
    assert_int_equal(user_spend_message(&users, root, 9000), 0);
  users_free(&users);
}

static void caps_are_a_users_and_not_an_admins(void **state) {
  struct users users;
  (void)state;
  config_defaults(&config);
  config.user_sessions_max = 2;
  config.user_loads_max = 1;
  config.user_arena_bytes_max = 1000;
  config.user_requests_max = 64;
  config.user_device_bytes_max = 500;
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
  for (int i = 0; i < 5; i++)
    assert_int_equal(user_add_session(&users, root, &failure), STATUS_OK);
  assert_int_equal(user_add_arena(&users, root, 5000, 5000, &failure), STATUS_OK);
  config.user_sessions_max = 0;
  assert_int_equal(user_add_session(&users, alice, &failure), STATUS_OK);
  users_free(&users);
}

/* ---- a real supervisor, and processes of several users */

static int configure(void **state) {
  (void)state;
  strcpy(folder + strlen(folder) - 6, "XXXXXX");
  if (mkdtemp(folder) == NULL || chmod(folder, 0755) != 0)
    return -1;
  peer_config(&config);
  snprintf(config.socket, sizeof config.socket, "%s/sock", folder);
  snprintf(config.use_group, sizeof config.use_group, "%d", USE_GROUP);
  snprintf(config.admin_group, sizeof config.admin_group, "%d", ADMIN_GROUP);
  config.socket_mode = 0666;
  return 0;
}

static int clean(void **state) {
  char path[64];
  (void)state;
  snprintf(path, sizeof path, "%s/sock.lock", folder);
  unlink(path);
  return rmdir(folder);
}

static void end(void) {
  assert_int_equal(kill(supervisor, SIGTERM), 0);
  assert_int_equal(peer_wait(supervisor), 0);
}

/* Runs `play` as that user, whose supplementary group is `group`; a failed assertion in it fails the test. */
static void as_user(uid_t uid, gid_t group, void (*play)(void)) {
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    if (setgroups(1, &group) != 0 || setgid(uid) != 0 || setuid(uid) != 0)
      _exit(9);
    play();
    exit(0);
  }
  assert_int_equal(peer_wait(pid), 0);
}

/* Assertions of cmocka end a test by a jump that a child must not take. */
#define EXPECT(condition)                                                                                              \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, failure.text);                               \
      _exit(1);                                                                                                        \
    }                                                                                                                  \
  } while (0)

static enum status ask_name(int peer, enum command command, const char *name, void *out) {
  struct message_weight_name request;
  snprintf(request.name, sizeof request.name, "%s", name);
  return peer_ask(peer, command, &request, NULL, 0, out, &failure);
}

static enum status load(int peer, const char *name, uint32_t seed, enum message_mode mode,
                        struct message_weight_info *info) {
  struct message_weight_load request = peer_load(name);
  request.mode = mode;
  int file = peer_file(64, 64, seed);
  enum status status = peer_ask(peer, COMMAND_weight_load, &request, &file, 1, info, &failure);
  close(file);
  return status;
}

static enum status greet(int peer) {
  struct message_hello_request request = {.version_min = 1, .version_max = 1, .client = "test"};
  return peer_ask(peer, COMMAND_hello, &request, NULL, 0, NULL, &failure);
}

/* Sends an empty body in every command, in the state where the command is allowed or, for ARENA, in all of them. What
 * counts is whether the gate lets it through: PERMISSION says no; anything else was judged by what comes behind. A body
 * that does not fit ends the session, so that each command has one of its own. */
static void every_command(enum role role) {
  size_t count;
  const struct command_info *commands = command_table(&count);
  static struct peer_reply reply;
  EXPECT(count > 20);
  for (size_t i = 0; i < count; i++) {
    const struct command_info *info = &commands[i];
    if (info->number == COMMAND_drain && role == ROLE_ADMIN)
      continue; /* has a test of its own: it ends the daemon */
    int peer = peer_connect(&config), fds[LIMIT_MESSAGE_FDS];
    if (info->states != STATE_NEW && role != ROLE_NONE) {
      peer_hello(peer);
      peer_arena(peer, 1);
    }
    for (uint32_t f = 0; f < info->fds; f++)
      fds[f] = 0;
    const struct message_empty nothing = {.reserved = 0};
    peer_send(peer, 7, info->number, &message_empty_type, &nothing, fds, info->fds);
    peer_receive(peer, 7, NULL, NULL, &reply);
    packet_close(&reply.packet);
    bool refused = reply.status == STATUS_PERMISSION;
    bool should = info->permission == PERMISSION_INTERNAL || role == ROLE_NONE ||
                  (info->permission == PERMISSION_ADMIN && role != ROLE_ADMIN);
    if (refused != should)
      fprintf(stderr, "%s as role %d: %s\n", info->name, (int)role, status_name(reply.status));
    EXPECT(refused == should);
    close(peer);
  }
}

static void every_command_as_nobody(void) {
  every_command(ROLE_NONE);
}

static void every_command_as_user(void) {
  every_command(ROLE_USER);
}

static void every_command_as_admin(void) {
  every_command(ROLE_ADMIN);
}

static void every_command_as_every_role(void **state) {
  (void)state;
  if (geteuid() != 0)
    skip(); /* to be another user takes root */
  supervisor = peer_start(&config);
  as_user(ALICE, OTHER_GROUP, every_command_as_nobody);
  as_user(ALICE, USE_GROUP, every_command_as_user);
  as_user(ALICE, ADMIN_GROUP, every_command_as_admin);
  every_command_as_admin(); /* root */
  end();
}

static void alice_loads(void) {
  struct message_weight_info info;
  int peer = peer_connect(&config);
  EXPECT(greet(peer) == STATUS_OK);
  EXPECT(load(peer, "hers", 1, MODE_DEFAULT, &info) == STATUS_OK);
  EXPECT(info.mode == MODE_PRIVATE && info.owner == ALICE);
  EXPECT(load(peer, "for all", 1, MODE_ALL, NULL) == STATUS_PERMISSION);
  EXPECT(load(peer, "hers", 1, MODE_ALL, NULL) == STATUS_PERMISSION);
  peer_arena(peer, 1);
  EXPECT(ask_name(peer, COMMAND_weight_open, "hers", NULL) == STATUS_OK);
  EXPECT(ask_name(peer, COMMAND_weight_open, "public", NULL) == STATUS_OK);
  EXPECT(ask_name(peer, COMMAND_weight_unload, "public", NULL) == STATUS_PERMISSION);
  EXPECT(load(peer, "public", 2, MODE_PRIVATE, NULL) == STATUS_PERMISSION);
}

static void bob_looks(void) {
  static struct message_weight_list_reply list;
  const struct message_weight_list_request request = {.after = ""};
  int peer = peer_connect(&config);
  EXPECT(greet(peer) == STATUS_OK);
  peer_arena(peer, 1);
  EXPECT(ask_name(peer, COMMAND_weight_open, "hers", NULL) == STATUS_PERMISSION);
  EXPECT(ask_name(peer, COMMAND_weight_info, "hers", NULL) == STATUS_PERMISSION);
  EXPECT(ask_name(peer, COMMAND_weight_unload, "hers", NULL) == STATUS_PERMISSION);
  EXPECT(load(peer, "hers", 1, MODE_DEFAULT, NULL) == STATUS_PERMISSION); /* also not by having the same content */
  EXPECT(load(peer, "hers", 3, MODE_DEFAULT, NULL) == STATUS_PERMISSION);
  EXPECT(peer_ask(peer, COMMAND_weight_list, &request, NULL, 0, &list, &failure) == STATUS_OK);
  EXPECT(list.weights_count == 1 && strcmp(list.weights[0].name, "public") == 0);
  EXPECT(ask_name(peer, COMMAND_weight_open, "public", NULL) == STATUS_OK);
}

static void weights_have_an_owner_and_a_mode(void **state) {
  struct message_weight_info info;
  static struct message_weight_list_reply list;
  const struct message_weight_list_request request = {.after = ""};
  (void)state;
  if (geteuid() != 0)
    skip();
  supervisor = peer_start(&config);
  int peer = peer_connect(&config);
  peer_hello(peer);
  assert_int_equal(load(peer, "public", 2, MODE_DEFAULT, &info), STATUS_OK);
  assert_int_equal(info.mode, MODE_ALL);
  as_user(ALICE, USE_GROUP, alice_loads);
  as_user(BOB, USE_GROUP, bob_looks);
  assert_int_equal(peer_ask(peer, COMMAND_weight_list, &request, NULL, 0, &list, &failure), STATUS_OK);
  assert_int_equal(list.weights_count, 2);
  assert_int_equal(load(peer, "hers", 1, MODE_ALL, &info), STATUS_OK); /* an admin opens it to all, and it stays hers */
  assert_int_equal(info.mode, MODE_ALL);
  assert_int_equal(info.owner, ALICE);
  assert_int_equal(load(peer, "public", 2, MODE_PRIVATE, &info), STATUS_OK);
  assert_int_equal(info.mode, MODE_PRIVATE);
  close(peer);
  end();
}

/* ---- places */

static int filled[2];

static void fill_up(void) {
  struct message_ping ping = {.payload = 3};
  int held[4], one_more, hasty;
  for (int i = 0; i < 3; i++) {
    held[i] = peer_connect(&config);
    EXPECT(greet(held[i]) == STATUS_OK);
  }
  one_more = peer_connect(&config);
  EXPECT(greet(one_more) == STATUS_BUSY);
  close(one_more);
  hasty = peer_connect(&config); /* is told in reply to whatever comes first */
  EXPECT(peer_ask(hasty, COMMAND_ping, &ping, NULL, 0, NULL, &failure) == STATUS_BUSY);
  close(hasty);
  char byte = 1;
  EXPECT(write(filled[1], &byte, 1) == 1);
  EXPECT(recv(held[0], &byte, 1, 0) == 0); /* until the daemon ends */
}

/* Returns when alice has all that she gets. She keeps it until the daemon ends. */
static pid_t start_filling(void) {
  char byte;
  assert_int_equal(pipe(filled), 0);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    gid_t group = USE_GROUP;
    close(filled[0]);
    if (setgroups(1, &group) != 0 || setgid(ALICE) != 0 || setuid(ALICE) != 0)
      _exit(9);
    fill_up();
    exit(0);
  }
  close(filled[1]);
  assert_int_equal(read(filled[0], &byte, 1), 1);
  close(filled[0]);
  return pid;
}

static void places_are_kept_for_admins(void **state) {
  (void)state;
  if (geteuid() != 0)
    skip();
  config.sessions_max = 5;
  config.sessions_reserved = 2;
  supervisor = peer_start(&config);
  pid_t alice = start_filling();
  for (int i = 0; i < 2; i++)
    assert_int_equal(greet(peer_connect(&config)), STATUS_OK);
  assert_int_equal(greet(peer_connect(&config)), STATUS_BUSY); /* all five are taken */
  end();
  assert_int_equal(peer_wait(alice), 0);
}

static void bob_gets_in(void) {
  EXPECT(greet(peer_connect(&config)) == STATUS_OK);
}

static void one_user_does_not_take_all_places(void **state) {
  (void)state;
  if (geteuid() != 0)
    skip();
  config.user_sessions_max = 3;
  supervisor = peer_start(&config);
  pid_t alice = start_filling();
  as_user(BOB, USE_GROUP, bob_gets_in);
  end();
  assert_int_equal(peer_wait(alice), 0);
}

static void use_all_caps(void) {
  struct message_arena_request arena = {.bytes = 40000, .entries = 8};
  static struct peer_reply reply;
  int first = peer_connect(&config), second = peer_connect(&config);
  EXPECT(greet(first) == STATUS_OK && greet(second) == STATUS_OK);
  EXPECT(peer_ask(first, COMMAND_arena_create, &arena, NULL, 0, NULL, &failure) == STATUS_OK);
  peer_send(second, 5, COMMAND_arena_create, &message_arena_request_type, &arena, NULL, 0);
  peer_receive(second, 5, NULL, NULL, &reply);
  EXPECT(reply.status == STATUS_BUSY && reply.retry_ms > 0);
  EXPECT(strstr(reply.error.text, "requests in flight") != NULL);
  arena.entries = 1;
  arena.bytes = 1 << 20;
  EXPECT(peer_ask(second, COMMAND_arena_create, &arena, NULL, 0, NULL, &failure) == STATUS_BUSY);
  EXPECT(strstr(failure.text, "bytes of arenas") != NULL);
  EXPECT(load(second, "a", 1, MODE_DEFAULT, NULL) == STATUS_OK);
  EXPECT(load(second, "a", 2, MODE_DEFAULT, NULL) == STATUS_EXISTS);
  EXPECT(load(second, "b", 2, MODE_DEFAULT, NULL) == STATUS_BUSY);
  EXPECT(strstr(failure.text, "device memory") != NULL);
  EXPECT(ask_name(second, COMMAND_weight_unload, "a", NULL) == STATUS_OK);
  EXPECT(load(second, "b", 2, MODE_DEFAULT, NULL) == STATUS_OK);
  close(first); /* and what it held can be had again */
  arena.entries = 8;
  arena.bytes = 40000;
  while (peer_ask(second, COMMAND_arena_create, &arena, NULL, 0, NULL, &failure) == STATUS_BUSY)
    continue;
  EXPECT(ask_name(second, COMMAND_weight_open, "b", NULL) == STATUS_OK);
}

static void caps_of_a_user_hold_over_its_sessions(void **state) {
  (void)state;
  if (geteuid() != 0)
    skip();
  config.user_requests_max = 12;
  config.user_arena_bytes_max = 200000;
  config.user_device_bytes_max = 6000;
  supervisor = peer_start(&config);
  as_user(ALICE, USE_GROUP, use_all_caps);
  end();
}

/* ---- time */

static void who_does_not_say_hello_is_cut_off(void **state) {
  (void)state;
  config.use_group[0] = config.admin_group[0] = '\0';
  supervisor = peer_start(&config);
  int mute = peer_connect(&config), other = peer_connect(&config);
  peer_hello(other);
  peer_expect_end(mute);
  assert_int_equal(peer_ask(other, COMMAND_ping, &(struct message_ping){.payload = 1}, NULL, 0, NULL, &failure),
                   STATUS_OK);
  end();
}

/* ---- descriptors */

static void the_descriptor_limit_still_answers(void **state) {
  enum { LIMIT = 160 };
  static struct peer_reply reply;
  struct message_status_reply *status = malloc(sizeof *status);
  struct message_arena_request arena = {.bytes = 4096, .entries = 1};
  const struct message_empty nothing = {.reserved = 0};
  const struct rlimit low = {.rlim_cur = LIMIT, .rlim_max = LIMIT};
  int held[LIMIT], count = 0, admin;
  (void)state;
  config.use_group[0] = config.admin_group[0] = '\0';
  supervisor = peer_start(&config);
  assert_int_equal(prlimit(supervisor, RLIMIT_NOFILE, &low, NULL), 0);
  bool refused = false;
  while (!refused) { /* root: an admin, who is refused last */
    assert_true(count < LIMIT);
    held[count] = peer_connect(&config);
    enum status greeting = greet(held[count]);
    if (greeting == STATUS_OK)
      greeting = peer_ask(held[count], COMMAND_arena_create, &arena, NULL, 0, NULL, &failure);
    count++;
    refused = greeting == STATUS_BUSY;
    assert_true(refused || greeting == STATUS_OK);
  }
  assert_true(count > 10);
  assert_non_null(strstr(failure.text, "descriptors"));
  assert_int_equal(peer_ask(held[0], COMMAND_status, &nothing, NULL, 0, status, &failure), STATUS_OK);
  uint32_t worker = status->devices[0].pid;
  assert_int_equal(kill((pid_t)worker, SIGKILL), 0); /* the successor still finds what it takes */
  do
    assert_int_equal(peer_ask(held[0], COMMAND_status, &nothing, NULL, 0, status, &failure), STATUS_OK);
  while (status->devices[0].pid == worker || strcmp(status->devices[0].state, "ready") != 0);
  int file = peer_file(64, 64, 1); /* a descriptor that comes along is refused by name, too */
  struct message_weight_load request = peer_load("w");
  assert_int_equal(peer_ask(held[0], COMMAND_weight_load, &request, &file, 1, NULL, &failure), STATUS_BUSY);
  close(file);
  for (int i = 1; i < count; i++)
    close(held[i]);
  do { /* and all is well when they have left */
    admin = peer_connect(&config);
    peer_send(admin, 1, COMMAND_hello, &message_hello_request_type,
              &(struct message_hello_request){.version_min = 1, .version_max = 1, .client = "again"}, NULL, 0);
    peer_receive(admin, 1, NULL, NULL, &reply);
    if (reply.status != STATUS_OK)
      close(admin);
  } while (reply.status == STATUS_BUSY);
  assert_int_equal(reply.status, STATUS_OK);
  while (peer_ask(admin, COMMAND_arena_create, &arena, NULL, 0, NULL, &failure) == STATUS_BUSY)
    continue;
  assert_int_equal(peer_ask(admin, COMMAND_status, &nothing, NULL, 0, status, &failure), STATUS_OK);
  free(status);
  end();
}

/* ---- drain */

static void gemmd_ends_with_its_last_session(void **state) {
  const struct message_empty nothing = {.reserved = 0};
  (void)state;
  config.use_group[0] = config.admin_group[0] = '\0';
  supervisor = peer_start(&config);
  int old = peer_connect(&config), asker = peer_connect(&config);
  peer_hello(old);
  peer_hello(asker);
  assert_int_equal(load(old, "a", 1, MODE_DEFAULT, NULL), STATUS_OK);
  assert_int_equal(peer_ask(asker, COMMAND_drain, &nothing, NULL, 0, NULL, &failure), STATUS_OK);
  assert_int_equal(load(old, "b", 1, MODE_DEFAULT, NULL), STATUS_SHUTTING_DOWN);
  peer_arena(old, 1); /* what is there is served to its end */
  assert_int_equal(ask_name(old, COMMAND_weight_open, "a", NULL), STATUS_OK);
  assert_int_equal(waitpid(supervisor, NULL, WNOHANG), 0);
  close(old);
  peer_expect_end(asker);
  assert_int_equal(peer_wait(supervisor), 0);
}

static void nobody_new_gets_in(void) {
  EXPECT(greet(peer_connect(&config)) == STATUS_SHUTTING_DOWN);
}

static void a_draining_gemmd_takes_nobody_new(void **state) {
  const struct message_empty nothing = {.reserved = 0};
  (void)state;
  if (geteuid() != 0)
    skip();
  supervisor = peer_start(&config);
  int old = peer_connect(&config);
  peer_hello(old);
  int asker = peer_connect(&config);
  peer_hello(asker);
  assert_int_equal(peer_ask(asker, COMMAND_drain, &nothing, NULL, 0, NULL, &failure), STATUS_OK);
  as_user(ALICE, USE_GROUP, nobody_new_gets_in);
  close(old);
  assert_int_equal(peer_wait(supervisor), 0);
}

#define ROLES(test) cmocka_unit_test_setup_teardown(test, configure, clean)

int main(int count, char **words) {
  peer_main(count, words);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_role_comes_from_user_and_groups),
      cmocka_unit_test(groups_are_found_by_name_and_number),
      cmocka_unit_test(users_of_legacy_handles_are_named),
      cmocka_unit_test(every_group_of_a_peer_is_read),
      cmocka_unit_test(messages_over_the_rate_wait),
      cmocka_unit_test(caps_are_a_users_and_not_an_admins),
      ROLES(every_command_as_every_role),
      ROLES(weights_have_an_owner_and_a_mode),
      ROLES(places_are_kept_for_admins),
      ROLES(one_user_does_not_take_all_places),
      ROLES(caps_of_a_user_hold_over_its_sessions),
      ROLES(who_does_not_say_hello_is_cut_off),
      ROLES(the_descriptor_limit_still_answers),
      ROLES(gemmd_ends_with_its_last_session),
      ROLES(a_draining_gemmd_takes_nobody_new),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
