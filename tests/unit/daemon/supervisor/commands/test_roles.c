/* Who may do what: every command as every role, weights of one user and of all. Other users are played by processes of
 * this test, which takes root. */
#include "daemon/supervisor/net/role.h"
#include "proto/gemm.h"
#include "tests/support/messages/users.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

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
    if (info->number == COMMAND_shapes_open)
      continue; /* goes by the right to borrow */
    int peer = peer_connect(&life.config), fds[LIMIT_MESSAGE_FDS];
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
  if (geteuid() != 0)
    skip(); /* to be another user takes root */
  life_begin();
  users_play(USERS_ALICE, USERS_OTHER, every_command_as_nobody);
  users_play(USERS_ALICE, USERS_USE, every_command_as_user);
  users_play(USERS_ALICE, USERS_ADMIN, every_command_as_admin);
  every_command_as_admin(); /* root */
  life_end();
}

static void alice_loads(void) {
  struct message_weight_info info;
  int peer = peer_connect(&life.config);
  EXPECT(users_greet(peer) == STATUS_OK);
  EXPECT(users_load(peer, "hers", 1, MODE_DEFAULT, &info) == STATUS_OK);
  EXPECT(info.mode == MODE_PRIVATE && info.owner == USERS_ALICE);
  EXPECT(users_load(peer, "for all", 1, MODE_ALL, NULL) == STATUS_PERMISSION);
  EXPECT(users_load(peer, "hers", 1, MODE_ALL, NULL) == STATUS_PERMISSION);
  peer_arena(peer, 1);
  EXPECT(life_ask_name(peer, COMMAND_weight_open, "hers", NULL) == STATUS_OK);
  EXPECT(life_ask_name(peer, COMMAND_weight_open, "public", NULL) == STATUS_OK);
  EXPECT(life_ask_name(peer, COMMAND_weight_unload, "public", NULL) == STATUS_PERMISSION);
  EXPECT(users_load(peer, "public", 2, MODE_PRIVATE, NULL) == STATUS_PERMISSION);
}

static void bob_looks(void) {
  static struct message_weight_list_reply list;
  const struct message_weight_list_request request = {.after = ""};
  int peer = peer_connect(&life.config);
  EXPECT(users_greet(peer) == STATUS_OK);
  peer_arena(peer, 1);
  EXPECT(life_ask_name(peer, COMMAND_weight_open, "hers", NULL) == STATUS_PERMISSION);
  EXPECT(life_ask_name(peer, COMMAND_weight_info, "hers", NULL) == STATUS_PERMISSION);
  EXPECT(life_ask_name(peer, COMMAND_weight_unload, "hers", NULL) == STATUS_PERMISSION);
  EXPECT(users_load(peer, "hers", 1, MODE_DEFAULT, NULL) ==
         STATUS_PERMISSION); /* also not by having the same content */
  EXPECT(users_load(peer, "hers", 3, MODE_DEFAULT, NULL) == STATUS_PERMISSION);
  EXPECT(peer_ask(peer, COMMAND_weight_list, &request, NULL, 0, &list, &life.failure) == STATUS_OK);
  EXPECT(list.weights_count == 1 && strcmp(list.weights[0].name, "public") == 0);
  EXPECT(life_ask_name(peer, COMMAND_weight_open, "public", NULL) == STATUS_OK);
}

static void weights_have_an_owner_and_a_mode(void **state) {
  struct message_weight_info info;
  static struct message_weight_list_reply list;
  const struct message_weight_list_request request = {.after = ""};
  if (geteuid() != 0)
    skip();
  life_begin();
  int peer = peer_connect(&life.config);
  peer_hello(peer);
  assert_int_equal(users_load(peer, "public", 2, MODE_DEFAULT, &info), STATUS_OK);
  assert_int_equal(info.mode, MODE_ALL);
  users_play(USERS_ALICE, USERS_USE, alice_loads);
  users_play(USERS_BOB, USERS_USE, bob_looks);
  assert_int_equal(peer_ask(peer, COMMAND_weight_list, &request, NULL, 0, &list, &life.failure), STATUS_OK);
  assert_int_equal(list.weights_count, 2);
  assert_int_equal(users_load(peer, "hers", 1, MODE_ALL, &info),
                   STATUS_OK); /* an admin opens it to all, and it stays hers */
  assert_int_equal(info.mode, MODE_ALL);
  assert_int_equal(info.owner, USERS_ALICE);
  assert_int_equal(users_load(peer, "public", 2, MODE_PRIVATE, &info), STATUS_OK);
  assert_int_equal(info.mode, MODE_PRIVATE);
  close(peer);
  life_end();
}

/* The status of a search for the weight's fastest kernel, of one row of f32. */
static enum status tune(int peer, const char *name, bool all, uint32_t iterations) {
  static struct message_tune_run_reply reply;
  struct message_tune_run_request request = {
      .m = 1, .x_type = GEMM_F32, .y_type = GEMM_F32, .all = all, .iterations = iterations};
  snprintf(request.name, sizeof request.name, "%s", name);
  return peer_ask(peer, COMMAND_tune_run, &request, NULL, 0, &reply, &life.failure);
}

static void alice_tunes(void) {
  struct message_weight_info info;
  static struct message_tune_trials_reply trials;
  struct message_tune_trials_request first = {.device = 0};
  const struct message_tune_pin_request pin = {.pattern = "hers", .kernel = ""};
  int peer = peer_connect(&life.config);
  EXPECT(users_greet(peer) == STATUS_OK);
  EXPECT(users_load(peer, "hers", 1, MODE_DEFAULT, &info) == STATUS_OK);
  EXPECT(tune(peer, "public", false, 0) == STATUS_PERMISSION);
  EXPECT(strstr(life.failure.text, "takes its owner or an admin") != NULL);
  EXPECT(tune(peer, "hers", true, 0) == STATUS_PERMISSION);
  EXPECT(strstr(life.failure.text, "an exhaustive search takes an admin") != NULL);
  EXPECT(tune(peer, "hers", false, 101) == STATUS_INVALID);
  EXPECT(strstr(life.failure.text, "iterations must be 0..100, got 101") != NULL);
  EXPECT(tune(peer, "hers", false, 2) == STATUS_OK);
  EXPECT(peer_ask(peer, COMMAND_tune_trials, &first, NULL, 0, &trials, &life.failure) == STATUS_OK);
  EXPECT(trials.trials_count > 0 && trials.total >= trials.trials_count);
  EXPECT(peer_ask(peer, COMMAND_tune_pin, &pin, NULL, 0, NULL, &life.failure) == STATUS_PERMISSION);
  EXPECT(tune(peer, "hers", false, 2) == STATUS_OK); /* the one before has ended */
}

/* Two at a time are one too many for a user: of those sent by two sessions at once one is refused, or the first had its
 * answer already; then it is tried again. */
static void alice_tunes_twice(void) {
  struct message_tune_run_request request = {
      .name = "hers", .m = 1, .x_type = GEMM_F32, .y_type = GEMM_F32, .iterations = 100};
  static struct peer_reply reply;
  int one = peer_connect(&life.config), other = peer_connect(&life.config);
  enum status status = STATUS_OK;
  EXPECT(users_greet(one) == STATUS_OK && users_greet(other) == STATUS_OK);
  for (int tries = 0; tries < 50 && status == STATUS_OK; tries++) {
    peer_send(one, 7, COMMAND_tune_run, &message_tune_run_request_type, &request, NULL, 0);
    status = tune(other, "hers", false, 2);
    peer_receive(one, 7, NULL, NULL, &reply);
    EXPECT(status == STATUS_OK || reply.status == STATUS_OK);
    status = status == STATUS_OK ? reply.status : status;
  }
  EXPECT(status == STATUS_BUSY);
}

static void who_may_look_for_kernels(void **state) {
  if (geteuid() != 0)
    skip();
  life_begin();
  int peer = peer_connect(&life.config);
  peer_hello(peer);
  assert_int_equal(users_load(peer, "public", 2, MODE_DEFAULT, NULL), STATUS_OK);
  users_play(USERS_ALICE, USERS_USE, alice_tunes);
  users_play(USERS_ALICE, USERS_USE, alice_tunes_twice);
  assert_int_equal(tune(peer, "public", true, 0), STATUS_OK);
  close(peer);
  life_end();
}

/* Whoever gemmd is not cannot have it look at CUDA's events, whose files are their owner's to take away; and memory by
 * IPC handles is for users whom the configuration names. */
static void open_by_ipc(void) {
  struct message_ipc_open request = {.device = 0, .kind = MESSAGE_IPC_EVENT};
  int peer = peer_connect(&life.config);
  EXPECT(users_greet(peer) == STATUS_OK);
  peer_arena(peer, 1);
  EXPECT(peer_ask(peer, COMMAND_ipc_open, &request, NULL, 0, NULL, &life.failure) == STATUS_PERMISSION);
  EXPECT(strstr(life.failure.text, "this is user 54331") != NULL);
  request = (struct message_ipc_open){.device = 0, .kind = MESSAGE_IPC_MEMORY, .bytes = 4096};
  enum status status = peer_ask(peer, COMMAND_ipc_open, &request, NULL, 0, NULL, &life.failure);
  EXPECT(status == (life.config.ipc_users[0] == '\0' ? STATUS_PERMISSION : STATUS_UNSUPPORTED));
}

static void ipc_is_not_for_every_user(void **state) {
  if (geteuid() != 0)
    skip();
  life_begin();
  users_play(USERS_ALICE, USERS_USE, open_by_ipc);
  life_end();
  snprintf(life.config.ipc_users, sizeof life.config.ipc_users, "%d", USERS_ALICE); /* whom the CPU backend fails */
  life_begin();
  users_play(USERS_ALICE, USERS_USE, open_by_ipc);
  life_end();
}

#define USERS(test) cmocka_unit_test_setup_teardown(test, users_configure, life_clean)

int main(int count, char **words) {
  peer_main(count, words);
  const struct CMUnitTest tests[] = {
      USERS(every_command_as_every_role),
      USERS(weights_have_an_owner_and_a_mode),
      USERS(who_may_look_for_kernels),
      USERS(ipc_is_not_for_every_user),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
