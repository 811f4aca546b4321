/* Time limits: a peer that says nothing, one that reads nothing, a loader that comes to no end. */
#include "tests/support/life.h"
#include "tests/support/peer.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmocka.h>

enum { PATIENCE_MS = 60000 };

static void who_does_not_say_hello_is_cut_off(void **state) {
  (void)state;
  life_begin();
  int other = life_client(), silent = peer_connect(&life.config);
  peer_expect_end(silent);
  close(silent);
  life_status(other);
  close(other);
  life_end();
}

static int bytes_to_read(int peer) {
  int bytes = 0;
  assert_int_equal(ioctl(peer, FIONREAD, &bytes), 0);
  return bytes;
}

/* Asks until an answer finds no room in the socket, and has to wait in gemmd. */
static void ask_and_do_not_read(int deaf, int other) {
  const struct message_ping ping = {.payload = 1};
  int before;
  do {
    before = bytes_to_read(deaf);
    peer_send(deaf, 1, COMMAND_ping, &message_ping_type, &ping, NULL, 0);
    for (int i = 0; i < 3; i++) /* what was sent before has been dealt with by then */
      life_status(other);
  } while (bytes_to_read(deaf) > before);
}

static void who_does_not_read_is_cut_off(void **state) {
  (void)state;
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

/* The loader does not even begin: it is none of gemmd's. */
static void a_loader_that_does_not_end_is_killed(void **state) {
  char program[64], own[4096] = "";
  struct message_weight_info info;
  (void)state;
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

int main(int count, char **words) {
  peer_main(count, words);
#define PATIENCE(test) cmocka_unit_test_setup_teardown(test, life_configure, life_clean)
  const struct CMUnitTest tests[] = {
      PATIENCE(who_does_not_say_hello_is_cut_off),
      PATIENCE(who_does_not_read_is_cut_off),
      PATIENCE(a_loader_that_does_not_end_is_killed),
  };
#undef PATIENCE
  return cmocka_run_group_tests(tests, NULL, NULL);
}
