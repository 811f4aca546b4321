/* Time limits: a peer that says nothing, one that reads nothing, a loader that comes to no end. */
#include "tests/support/messages/life.h"
#include "tests/support/messages/peer.h"
#include "tests/support/system/hold.h"
#include "tests/support/system/nap.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { PATIENCE_MS = 60000 };

static void who_does_not_say_hello_is_cut_off(void **state) {
  life_begin();
  int other = life_client(), silent = peer_connect(&life.config);
  peer_expect_end(silent);
  close(silent);
  life_status(other);
  close(other);
  life_end();
}

/* What waits for gemmd when its own time is over is read first: gemmd, and not the peer, did not run meanwhile. */
static void hello_that_came_while_gemmd_stood_still_counts(void **state) {
  enum { LONGER_S = 3 }; /* than a peer has to say hello */
  life_begin();
  int other = life_client(), peer = peer_connect(&life.config);
  while (life_status(other)->sessions < 2)
    nap_shortly();
  hold_process(life.supervisor);
  sleep(LONGER_S);
  const struct message_hello_request hello = {.version_min = 1, .version_max = 1, .client = "late"};
  peer_send(peer, 1, COMMAND_hello, &message_hello_request_type, &hello, NULL, 0);
  assert_int_equal(kill(life.supervisor, SIGCONT), 0);
  static struct peer_reply reply;
  peer_receive(peer, 1, NULL, NULL, &reply);
  assert_int_equal(reply.status, STATUS_OK);
  close(peer);
  close(other);
  life_end();
}

static int bytes_to_read(int peer) {
  int bytes = 0;
  assert_int_equal(ioctl(peer, FIONREAD, &bytes), 0);
  return bytes;
}

/* Asks until an answer finds no room in the socket, and has to wait in gemmd; how often. */
static int ask_and_do_not_read(int deaf, int other) {
  const struct message_ping ping = {.payload = 1};
  int before, count = 0;
  do {
    before = bytes_to_read(deaf);
    count++;
    peer_send(deaf, 1, COMMAND_ping, &message_ping_type, &ping, NULL, 0);
    for (int i = 0; i < 3; i++) /* what was sent before has been dealt with by then */
      life_status(other);
  } while (bytes_to_read(deaf) > before);
  return count;
}

static void who_does_not_read_is_cut_off(void **state) {
  life_begin();
  int other = life_client(), deaf = life_client();
  ask_and_do_not_read(deaf, other);
  struct pollfd ended = {.fd = deaf, .events = 0};
  assert_int_equal(poll(&ended, 1, 0), 0);
  assert_int_equal(poll(&ended, 1, PATIENCE_MS), 1);
  close(deaf);
  life_status(other);
  close(other);
  life_end();
}

/* Who sends what is no message gets the replies that were due, and then the end, though it reads them late. */
static void who_is_cut_off_hears_of_it_late(void **state) {
  static struct peer_reply reply;
  life_begin();
  int other = life_client(), deaf = life_client();
  int pings = ask_and_do_not_read(deaf, other);
  assert_int_equal(send(deaf, "?", 1, 0), 1);
  life_status(other);
  for (int i = 0; i < pings; i++)
    peer_receive(deaf, 1, NULL, NULL, &reply);
  struct pollfd ended = {.fd = deaf, .events = POLLIN};
  assert_int_equal(poll(&ended, 1, PATIENCE_MS), 1);
  peer_expect_end(deaf);
  close(deaf);
  close(other);
  life_end();
}

/* The loader does not even begin: it is none of gemmd's. */
static void a_loader_that_does_not_end_is_killed(void **state) {
  char program[64], own[4096] = "";
  struct message_weight_info info;
  snprintf(program, sizeof program, "%s/program", life.folder);
  assert_true(readlink("/proc/self/exe", own, sizeof own - 1) > 0);
  int file = open(program, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
  assert_true(dprintf(file, "#!/bin/sh\n[ \"$1\" = --load ] && exec sleep 1000\nexec %s \"$@\"\n", own) > 0);
  close(file);
  life.config.load_timeout_s = 1;
  peer_children(program);
  life_begin();
  peer_children(NULL);
  int peer = life_client();
  peer_arena(peer, 4);
  assert_int_equal(life_load(peer, "a", 1, false, &info), STATUS_TIMEOUT);
  assert_non_null(strstr(life.failure.text, "1 s"));
  assert_int_equal(life_status(peer)->names, 0);
  close(peer);
  life_end();
  assert_int_equal(unlink(program), 0);
}

/* ---- a loader that says more often how far it is than any client wants to know */

enum { CONTROL_FD = 3, CHATTER = 500 };

static void say(const uint8_t *bytes, size_t length) {
  struct pollfd room = {.fd = CONTROL_FD, .events = POLLOUT};
  struct error error;
  enum status status;
  while ((status = transport_send(CONTROL_FD, bytes, length, NULL, 0, &error)) == STATUS_BUSY)
    poll(&room, 1, -1);
  if (status != STATUS_OK)
    _exit(1);
}

/* Does not return. */
static void load_with_chatter(void) {
  static struct packet packet;
  struct pollfd control = {.fd = CONTROL_FD, .events = POLLIN};
  struct message_head head, event = {.kind = MESSAGE_EVENT, .code = EVENT_weight_progress};
  struct message_weight_progress progress = {.total = CHATTER};
  struct message_body body;
  uint8_t bytes[1024];
  size_t length;
  struct error error;
  if (poll(&control, 1, -1) != 1 || transport_receive(CONTROL_FD, &packet, &error) != STATUS_OK ||
      message_decode_head(packet.bytes, packet.length, &head, &body, &error) != STATUS_OK)
    _exit(1);
  progress.request = head.id;
  for (progress.done = 1; progress.done <= CHATTER; progress.done++) {
    if (message_encode(&event, &message_weight_progress_type, &progress, bytes, sizeof bytes, &length, &error) !=
        STATUS_OK)
      _exit(1);
    say(bytes, length);
  }
  (void)error_set(&error, STATUS_BAD_FILE, "it was talk and nothing else");
  if (message_encode_failure(head.id, &error, 0, bytes, sizeof bytes, &length, &error) != STATUS_OK)
    _exit(1);
  say(bytes, length);
  _exit(0);
}

/* Replies wait for whoever does not read them, and cannot be too many; what only tells how far a load is does not. */
static void progress_does_not_pile_up(void **state) {
  struct message_weight_load request = peer_load("a");
  struct message_weight_info info;
  static struct peer_reply reply;
  request.progress = true;
  life.config.loaders_max = 1;
  setenv("GEMMD_TEST_CHATTER", "yes", 1);
  life_begin();
  unsetenv("GEMMD_TEST_CHATTER");
  int other = life_client(), deaf = life_client(), file = peer_file(64, 64, 1);
  int pings = ask_and_do_not_read(deaf, other);
  peer_send(deaf, 2, COMMAND_weight_load, &message_weight_load_type, &request, &file, 1);
  close(file);
  life_status(other);
  assert_int_equal(life_load(other, "b", 1, false, &info), STATUS_BAD_FILE); /* the next, so that one is over by then */
  for (int i = 0; i < pings; i++)
    peer_receive(deaf, 1, NULL, NULL, &reply);
  peer_receive(deaf, 2, NULL, NULL, &reply);
  assert_int_equal(reply.status, STATUS_BAD_FILE);
  close(deaf);
  close(other);
  life_end();
}

int main(int count, char **words) {
  if (getenv("GEMMD_TEST_CHATTER") != NULL && count > 1 && strcmp(words[1], "--load") == 0)
    load_with_chatter();
  peer_main(count, words);
#define PATIENCE(test) cmocka_unit_test_setup_teardown(test, life_configure, life_clean)
  const struct CMUnitTest tests[] = {
      PATIENCE(who_does_not_say_hello_is_cut_off),    PATIENCE(hello_that_came_while_gemmd_stood_still_counts),
      PATIENCE(who_does_not_read_is_cut_off),         PATIENCE(who_is_cut_off_hears_of_it_late),
      PATIENCE(a_loader_that_does_not_end_is_killed), PATIENCE(progress_does_not_pile_up),
  };
#undef PATIENCE
  return cmocka_run_group_tests(tests, NULL, NULL);
}
