/* A worker that a kernel has run wild in, or a spare one: what it says without being asked is its end, and another
 * takes its place. The worker is this program, told by its environment which lie to tell, once. */
#include "tests/support/messages/life.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { CONTROL_FD = 3, NO_EVENT = 999 };

static const char *const lies[] = {"a request", "a reply to nothing", "ready twice", "an event that is none",
                                   "garbage"};
static const char *const lies_of_a_spare[] = {"a request", "a reply to nothing", "ready twice", "garbage"};

/* ---- the worker */

static void say(enum message_kind kind, uint32_t code, const struct message_type *type, const void *body, bool spoil) {
  struct message_head head = {.kind = kind, .id = kind == MESSAGE_EVENT ? 0 : 77, .code = code};
  uint8_t bytes[2048];
  size_t length;
  struct error error;
  if (message_encode(&head, type, body, bytes, sizeof bytes, &length, &error) != STATUS_OK)
    _exit(1);
  if (spoil)
    memset(bytes, 0xc1, length);
  if (transport_send(CONTROL_FD, bytes, length, NULL, 0, &error) != STATUS_OK)
    _exit(1);
}

/* Does not return. */
static void lie(const char *what) {
  const struct message_empty nothing = {.reserved = 0};
  const struct message_worker_ready ready = {
      .devices = 1, .slab_granularity = 4096, .memory_total = 1 << 30, .backend = "cpu", .device_name = "liar"};
  if (strcmp(what, "a request") == 0)
    say(MESSAGE_REQUEST, COMMAND_status, &message_empty_type, &nothing, false);
  else if (strcmp(what, "a reply to nothing") == 0)
    say(MESSAGE_REPLY, STATUS_OK, &message_empty_type, &nothing, false);
  else if (strcmp(what, "an event that is none") == 0)
    say(MESSAGE_EVENT, NO_EVENT, &message_empty_type, &nothing, false);
  else
    say(MESSAGE_EVENT, EVENT_worker_ready, &message_worker_ready_type, &ready, strcmp(what, "garbage") == 0);
  if (strcmp(what, "ready twice") == 0)
    say(MESSAGE_EVENT, EVENT_worker_ready, &message_worker_ready_type, &ready, false);
  for (;;)
    pause();
}

/* ---- the tests */

static char flag[64]; /* a file that whoever lies removes: the others are honest */

static void plant(const char *what, const char *who) {
  snprintf(flag, sizeof flag, "%s/lie", life.folder);
  FILE *file = fopen(flag, "w");
  assert_non_null(file);
  fclose(file);
  setenv("GEMMD_TEST_LIE", what, 1);
  setenv("GEMMD_TEST_LIAR", who, 1);
  setenv("GEMMD_TEST_FLAG", flag, 1);
  life_begin();
  unsetenv("GEMMD_TEST_LIE");
}

static void expect_a_load(int peer) {
  struct message_weight_info info;
  assert_int_equal(life_load(peer, "w", 1, false, &info), STATUS_OK);
  assert_int_equal(life_status(peer)->devices[0].memory_used, info.bytes);
}

static void a_worker_that_says_what_it_was_not_asked_is_replaced(void **state) {
  for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
    plant(lies[i], "worker");
    int peer = life_client();
    assert_string_not_equal(life_wait_for(peer, 0, 1, "ready")->name, "liar");
    assert_int_equal(life.status.devices[0].restarts, 1);
    expect_a_load(peer);
    close(peer);
    life_end();
  }
}

static int children(void) {
  char path[64];
  int child, count = 0;
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)life.supervisor, (int)life.supervisor);
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  while (fscanf(file, "%d", &child) == 1)
    count++;
  fclose(file);
  return count;
}

static void so_is_a_spare_one_and_nobody_notices(void **state) {
  life.config.worker_spare = 1;
  for (size_t i = 0; i < sizeof lies_of_a_spare / sizeof *lies_of_a_spare; i++) {
    plant(lies_of_a_spare[i], "spare");
    int peer = life_client();
    uint32_t worker = life_wait_for(peer, 0, 0, "ready")->pid;
    while (access(flag, F_OK) == 0 || children() != 1)
      life_status(peer);
    expect_a_load(peer);
    assert_int_equal(life.status.devices[0].pid, worker);
    assert_int_equal(life.status.devices[0].restarts, 0);
    assert_int_equal(kill((pid_t)worker, SIGKILL), 0);
    life_wait_for(peer, 0, 1, "ready");
    assert_int_equal(life.status.weights, 1);
    close(peer);
    life_end();
  }
}

int main(int count, char **words) {
  const char *what = getenv("GEMMD_TEST_LIE"), *who = getenv("GEMMD_TEST_LIAR"), *file = getenv("GEMMD_TEST_FLAG");
  bool standby = count > 3 && strcmp(words[3], "--standby") == 0;
  if (what != NULL && count > 1 && strcmp(words[1], "--worker") == 0 && standby == (strcmp(who, "spare") == 0) &&
      unlink(file) == 0)
    lie(what);
  peer_main(count, words);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_worker_that_says_what_it_was_not_asked_is_replaced, life_configure, life_clean),
      cmocka_unit_test_setup_teardown(so_is_a_spare_one_and_nobody_notices, life_configure, life_clean),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
