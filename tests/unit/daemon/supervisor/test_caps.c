/* How much of it: places, what one user may have over all of its sessions, the limit on descriptors. Other users are
 * played by processes of this test, which takes root. */
#include "tests/support/messages/users.h"
#include "tests/support/system/nap.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static int filled[2];

static void fill_up(void) {
  struct message_ping ping = {.payload = 3};
  int held[4], one_more, hasty;
  for (int i = 0; i < 3; i++) {
    held[i] = peer_connect(&life.config);
    EXPECT(users_greet(held[i]) == STATUS_OK);
  }
  one_more = peer_connect(&life.config);
  EXPECT(users_greet(one_more) == STATUS_BUSY);
  close(one_more);
  hasty = peer_connect(&life.config); /* is told in reply to whatever comes first */
  EXPECT(peer_ask(hasty, COMMAND_ping, &ping, NULL, 0, NULL, &life.failure) == STATUS_BUSY);
  close(hasty);
  char byte = 1;
  EXPECT(write(filled[1], &byte, 1) == 1);
  EXPECT(recv(held[0], &byte, 1, 0) == 0); /* until the daemon ends */
}

/* Returns when alice has all that she gets. She keeps it until the daemon ends. */
static pid_t start_filling(void) {
  char byte;
  assert_int_equal(pipe(filled), 0);
  pid_t pid = users_start(USERS_ALICE, USERS_USE, fill_up);
  close(filled[1]);
  assert_int_equal(read(filled[0], &byte, 1), 1);
  close(filled[0]);
  return pid;
}

static void places_are_kept_for_admins(void **state) {
  if (geteuid() != 0)
    skip();
  life.config.sessions_max = 5;
  life.config.sessions_reserved = 2;
  life_begin();
  pid_t alice = start_filling();
  for (int i = 0; i < 2; i++)
    assert_int_equal(users_greet(peer_connect(&life.config)), STATUS_OK);
  assert_int_equal(users_greet(peer_connect(&life.config)), STATUS_BUSY); /* all five are taken */
  life_end();
  assert_int_equal(peer_wait(alice), 0);
}

static void bob_gets_in(void) {
  EXPECT(users_greet(peer_connect(&life.config)) == STATUS_OK);
}

static void one_user_does_not_take_all_places(void **state) {
  if (geteuid() != 0)
    skip();
  life.config.user_sessions_max = 3;
  life_begin();
  pid_t alice = start_filling();
  users_play(USERS_BOB, USERS_USE, bob_gets_in);
  life_end();
  assert_int_equal(peer_wait(alice), 0);
}

static void use_all_caps(void) {
  struct message_arena_request arena = {.bytes = 40000, .entries = 8};
  static struct peer_reply reply;
  int first = peer_connect(&life.config), second = peer_connect(&life.config);
  EXPECT(users_greet(first) == STATUS_OK && users_greet(second) == STATUS_OK);
  EXPECT(peer_ask(first, COMMAND_arena_create, &arena, NULL, 0, NULL, &life.failure) == STATUS_OK);
  peer_send(second, 5, COMMAND_arena_create, &message_arena_request_type, &arena, NULL, 0);
  peer_receive(second, 5, NULL, NULL, &reply);
  EXPECT(reply.status == STATUS_BUSY && reply.retry_ms > 0);
  EXPECT(strstr(reply.error.text, "requests in flight") != NULL);
  arena.entries = 1;
  arena.bytes = 1 << 20;
  EXPECT(peer_ask(second, COMMAND_arena_create, &arena, NULL, 0, NULL, &life.failure) == STATUS_BUSY);
  EXPECT(strstr(life.failure.text, "bytes of arenas") != NULL);
  EXPECT(users_load(second, "a", 1, MODE_DEFAULT, NULL) == STATUS_OK);
  EXPECT(users_load(second, "a", 2, MODE_DEFAULT, NULL) == STATUS_EXISTS);
  EXPECT(users_load(second, "b", 2, MODE_DEFAULT, NULL) == STATUS_BUSY);
  EXPECT(strstr(life.failure.text, "device memory") != NULL);
  EXPECT(life_ask_name(second, COMMAND_weight_unload, "a", NULL) == STATUS_OK);
  EXPECT(users_load(second, "b", 2, MODE_DEFAULT, NULL) == STATUS_OK);
  close(first); /* and what it held can be had again */
  arena.entries = 8;
  arena.bytes = 40000;
  while (peer_ask(second, COMMAND_arena_create, &arena, NULL, 0, NULL, &life.failure) == STATUS_BUSY)
    nap_shortly();
  EXPECT(life_ask_name(second, COMMAND_weight_open, "b", NULL) == STATUS_OK);
}

static void caps_of_a_user_hold_over_its_sessions(void **state) {
  if (geteuid() != 0)
    skip();
  life.config.user_requests_max = 12;
  life.config.user_arena_bytes_max = 200000;
  life.config.user_device_bytes_max = 6000;
  life_begin();
  users_play(USERS_ALICE, USERS_USE, use_all_caps);
  life_end();
}

static void use_all_names(void) {
  int peer = peer_connect(&life.config);
  EXPECT(users_greet(peer) == STATUS_OK);
  EXPECT(users_load(peer, "a", 1, MODE_DEFAULT, NULL) == STATUS_OK);
  EXPECT(users_load(peer, "b", 1, MODE_DEFAULT, NULL) == STATUS_OK); /* equal content takes no memory, and a name */
  EXPECT(users_load(peer, "c", 1, MODE_DEFAULT, NULL) == STATUS_BUSY);
  EXPECT(strstr(life.failure.text, "may have 2 names of weights, has 2") != NULL);
  EXPECT(users_load(peer, "b", 1, MODE_DEFAULT, NULL) == STATUS_OK); /* it is there already */
  EXPECT(life_ask_name(peer, COMMAND_weight_unload, "a", NULL) == STATUS_OK);
  EXPECT(users_load(peer, "c", 1, MODE_DEFAULT, NULL) == STATUS_OK);
}

static void names_of_a_user_are_capped(void **state) {
  if (geteuid() != 0)
    skip();
  life.config.user_names_max = 2;
  life_begin();
  users_play(USERS_ALICE, USERS_USE, use_all_names);
  life_end();
}

/* A refusal takes memory and a descriptor until it is read, and is not for everybody when they are many. */
static void refused_connections_are_not_without_end(void **state) {
  enum { MANY = 1000 };
  const struct message_ping ping = {.payload = 3};
  static struct peer_reply reply;
  static int silent[MANY];
  int count = 0;
  if (geteuid() != 0)
    skip();
  life.config.sessions_max = 1;
  life.config.sessions_reserved = 0;
  life_begin();
  int first = life_client();
  struct pollfd ended = {.events = POLLRDHUP};
  do { /* those before have two seconds to say something */
    assert_true(count < MANY);
    ended.fd = silent[count++] = peer_connect(&life.config);
    life_status(first); /* it has been accepted by then */
    assert_true(poll(&ended, 1, 0) >= 0);
  } while (ended.revents == 0);
  assert_in_range(count, 65, MANY);
  for (int i = 0; i < count; i++)
    close(silent[i]);
  do { /* and there is room for them again */
    silent[0] = peer_connect(&life.config);
    life_status(first);
    ended = (struct pollfd){.fd = silent[0], .events = POLLRDHUP};
    assert_true(poll(&ended, 1, 0) >= 0);
    if (ended.revents != 0)
      close(silent[0]);
  } while (ended.revents != 0);
  peer_send(silent[0], 1, COMMAND_ping, &message_ping_type, &ping, NULL, 0);
  peer_receive(silent[0], 1, NULL, NULL, &reply);
  assert_int_equal(reply.status, STATUS_BUSY);
  close(silent[0]);
  close(first);
  life_end();
}

static void share_more_than_allowed(void) {
  enum { PIECE = 65536 };
  const struct message_arena_request arena = {.bytes = PIECE, .entries = 1};
  struct message_tensor_open request = {.device = 0, .bytes = PIECE};
  struct message_tensor_handle one;
  int peer = peer_connect(&life.config), memory = memfd_create("own", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT(users_greet(peer) == STATUS_OK && memory >= 0);
  EXPECT(ftruncate(memory, PIECE) == 0 && fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
  while (peer_ask(peer, COMMAND_arena_create, &arena, NULL, 0, NULL, &life.failure) == STATUS_BUSY)
    nap_shortly(); /* while a session before this one leaves */
  EXPECT(peer_ask(peer, COMMAND_tensor_open, &request, &memory, 1, &one, &life.failure) == STATUS_OK);
  EXPECT(peer_ask(peer, COMMAND_tensor_open, &request, &memory, 1, NULL, &life.failure) == STATUS_BUSY);
  EXPECT(strstr(life.failure.text, "bytes of arenas") != NULL);
  EXPECT(peer_ask(peer, COMMAND_tensor_close, &one, NULL, 0, NULL, &life.failure) == STATUS_OK);
  EXPECT(peer_ask(peer, COMMAND_tensor_open, &request, &memory, 1, &one, &life.failure) == STATUS_OK);
}

static void memory_of_a_users_own_counts_as_that_of_arenas(void **state) {
  if (geteuid() != 0)
    skip();
  life.config.user_arena_bytes_max = 65536 * 3 - 1; /* no more than two of those pieces, because rings come on top */
  life_begin();
  users_play(USERS_ALICE, USERS_USE, share_more_than_allowed);
  users_play(USERS_ALICE, USERS_USE, share_more_than_allowed); /* what the first one had goes with its session */
  life_end();
}

/* ---- messages */

static int asked[2], go_on[2];

/* One a second, and two at once: sixty take a minute. Nearly none is answered when somebody else has had answers. */
static void ask_in_haste(void) {
  enum { HASTE = 60, FEW = 40 };
  static uint8_t bytes[LIMIT_MESSAGE_BYTES];
  const struct message_ping ping = {.payload = 1};
  int peer = peer_connect(&life.config), answered = 0;
  EXPECT(users_greet(peer) == STATUS_OK);
  for (uint32_t id = 2; id < HASTE; id++)
    peer_send(peer, id, COMMAND_ping, &message_ping_type, &ping, NULL, 0);
  EXPECT(write(asked[1], bytes, 1) == 1 && read(go_on[0], bytes, 1) == 1);
  while (recv(peer, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
    answered++;
  EXPECT(answered < FEW);
}

static void messages_that_come_too_fast_wait(void **state) {
  char byte = 1;
  if (geteuid() != 0)
    skip();
  life.config.user_messages_per_s = 1;
  life_begin();
  assert_int_equal(pipe(asked) | pipe(go_on), 0);
  pid_t alice = users_start(USERS_ALICE, USERS_USE, ask_in_haste);
  assert_int_equal(read(asked[0], &byte, 1), 1);
  int admin = life_client(); /* who is not slowed down */
  for (int i = 0; i < 100; i++)
    life_status(admin);
  assert_int_equal(write(go_on[1], &byte, 1), 1);
  assert_int_equal(peer_wait(alice), 0);
  for (int i = 0; i < 2; i++)
    assert_int_equal(close(asked[i]) | close(go_on[i]), 0);
  close(admin);
  life_end();
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
  life.config.use_group[0] = life.config.admin_group[0] = '\0';
  life_begin();
  assert_int_equal(prlimit(life.supervisor, RLIMIT_NOFILE, &low, NULL), 0);
  bool refused = false;
  while (!refused) { /* root: an admin, who is refused last */
    assert_true(count < LIMIT);
    held[count] = peer_connect(&life.config);
    enum status greeting = users_greet(held[count]);
    if (greeting == STATUS_OK)
      greeting = peer_ask(held[count], COMMAND_arena_create, &arena, NULL, 0, NULL, &life.failure);
    count++;
    refused = greeting == STATUS_BUSY;
    assert_true(refused || greeting == STATUS_OK);
  }
  assert_true(count > 10);
  assert_non_null(strstr(life.failure.text, "descriptors"));
  assert_int_equal(peer_ask(held[0], COMMAND_status, &nothing, NULL, 0, status, &life.failure), STATUS_OK);
  uint32_t worker = status->devices[0].pid;
  assert_int_equal(kill((pid_t)worker, SIGKILL), 0); /* the successor still finds what it takes */
  do {
    nap_shortly();
    assert_int_equal(peer_ask(held[0], COMMAND_status, &nothing, NULL, 0, status, &life.failure), STATUS_OK);
  } while (status->devices[0].pid == worker || strcmp(status->devices[0].state, "ready") != 0);
  int file = peer_file(64, 64, 1); /* a descriptor that comes along is refused by name, too */
  struct message_weight_load request = peer_load("w");
  assert_int_equal(peer_ask(held[0], COMMAND_weight_load, &request, &file, 1, NULL, &life.failure), STATUS_BUSY);
  close(file);
  for (int i = 1; i < count; i++)
    close(held[i]);
  do { /* and all is well when they have left */
    admin = peer_connect(&life.config);
    peer_send(admin, 1, COMMAND_hello, &message_hello_request_type,
              &(struct message_hello_request){.version_min = 1, .version_max = 1, .client = "again"}, NULL, 0);
    peer_receive(admin, 1, NULL, NULL, &reply);
    if (reply.status != STATUS_OK)
      close(admin);
  } while (reply.status == STATUS_BUSY);
  assert_int_equal(reply.status, STATUS_OK);
  while (peer_ask(admin, COMMAND_arena_create, &arena, NULL, 0, NULL, &life.failure) == STATUS_BUSY)
    nap_shortly();
  assert_int_equal(peer_ask(admin, COMMAND_status, &nothing, NULL, 0, status, &life.failure), STATUS_OK);
  free(status);
  life_end();
}

#define USERS(test) cmocka_unit_test_setup_teardown(test, users_configure, life_clean)

int main(int count, char **words) {
  peer_main(count, words);
  const struct CMUnitTest tests[] = {
      USERS(places_are_kept_for_admins),
      USERS(one_user_does_not_take_all_places),
      USERS(caps_of_a_user_hold_over_its_sessions),
      USERS(names_of_a_user_are_capped),
      USERS(refused_connections_are_not_without_end),
      USERS(memory_of_a_users_own_counts_as_that_of_arenas),
      USERS(messages_that_come_too_fast_wait),
      USERS(the_descriptor_limit_still_answers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
