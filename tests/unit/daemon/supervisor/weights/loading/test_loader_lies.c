/* A loader that a hostile file has taken over: it runs as gemmd and answers what it likes. Each answer is refused, and
 * the next load goes well. The loader is this program, told by its environment which lie to tell. */
#include "daemon/memfd.h"
#include "daemon/supervisor/weights/loading/load_line.h"
#include "proto/gemm.h"
#include "tests/support/messages/life.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum {
  CONTROL_FD = 3,
  N = 64,
  K = 128,
  LARGE = 2200 /* rows and columns of a file that is no small one */
};
_Static_assert((uint64_t)LARGE *LARGE * 4 > LOAD_LINE_SMALL_BYTES, "as f32");

static const struct lie {
  const char *name, *reason; /* of the refusal */
} lies[] = {
    {"size", "bytes where"},
    {"format", "the loader made fp8"},
    {"scale", "the loader made"},
    {"shape", "N must be"},
    {"numbers", "the loader left numbers of type 3 to a device"}, /* which nobody asked for */
    {"short memory", "the memfd must have"},
    {"open memory", "not sealed"},
    {"no memory", "no memfd"},
    {"socket", "no memfd"},
    {"other request", "what it was not asked"},
    {"garbage", "the loader"},
    {"nothing", "was ended by signal 9 (Killed), as the kernel does where there is no more memory"},
    {"stands still", "took longer than 1 s"},
};

/* ---- the loader */

static int make_memory(const char *lie, uint64_t bytes) {
  struct error error;
  int fd = memfd_create("lie", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (strcmp(lie, "no memory") == 0)
    return -1;
  if (strcmp(lie, "socket") == 0)
    return CONTROL_FD;
  if (ftruncate(fd, (off_t)(strcmp(lie, "short memory") == 0 ? 4096 : bytes)) != 0)
    _exit(1);
  if (strcmp(lie, "open memory") != 0 && memfd_freeze(fd, &error) != STATUS_OK)
    _exit(1);
  return fd;
}

static void answer(const char *lie, uint32_t id) {
  const struct gemm_weight shape = {.n = N, .k = K, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW};
  static uint8_t bytes[1024];
  struct gemm_layout layout;
  struct error error;
  size_t length;
  if (gemm_layout_compute(&shape, &layout, &error) != STATUS_OK)
    _exit(1);
  struct message_load_done done = {
      .n = N, .k = K, .format = shape.format, .scale = shape.scale, .bytes = layout.total_bytes};
  struct message_head head = {.kind = MESSAGE_REPLY, .id = id, .code = STATUS_OK};
  if (strcmp(lie, "size") == 0)
    done.bytes += 4096;
  if (strcmp(lie, "format") == 0)
    done.format = GEMM_FORMAT_FP8;
  if (strcmp(lie, "scale") == 0)
    done.scale = GEMM_SCALE_ONE;
  if (strcmp(lie, "shape") == 0)
    done.n = -1;
  if (strcmp(lie, "numbers") == 0)
    done.numbers = GEMM_BF16;
  if (strcmp(lie, "other request") == 0)
    head.id++;
  int fd = make_memory(lie, done.bytes);
  if (message_encode(&head, &message_load_done_type, &done, bytes, sizeof bytes, &length, &error) != STATUS_OK)
    _exit(1);
  if (strcmp(lie, "garbage") == 0)
    memset(bytes, 0xc1, length);
  if (transport_send(CONTROL_FD, bytes, length, &fd, fd >= 0, &error) != STATUS_OK)
    _exit(1);
}

/* Does not return. */
static void load_as(const char *lie) {
  static struct packet packet;
  struct pollfd control = {.fd = CONTROL_FD, .events = POLLIN};
  struct message_head head;
  struct message_body body;
  struct error error;
  if (poll(&control, 1, -1) != 1 || transport_receive(CONTROL_FD, &packet, &error) != STATUS_OK ||
      message_decode_head(packet.bytes, packet.length, &head, &body, &error) != STATUS_OK)
    _exit(1);
  if (strcmp(lie, "stands still") == 0)
    raise(SIGSTOP);
  if (strcmp(lie, "nothing") != 0)
    answer(lie, head.id);
  close(CONTROL_FD);
  for (;;) /* what it has said is enough: nobody waits for its end */
    pause();
}

/* ---- the tests */

static void tell(const struct lie *lie) {
  struct message_weight_info info;
  life.config.load_timeout_s = strcmp(lie->name, "stands still") == 0 ? 1 : 600;
  setenv("GEMMD_TEST_LIE", lie->name, 1);
  life_begin();
  unsetenv("GEMMD_TEST_LIE");
  int peer = life_client();
  enum status status = life_load(peer, "w", 1, false, &info);
  if (status == STATUS_OK || strstr(life.failure.text, lie->reason) == NULL)
    fail_msg("%s: %s, \"%s\"", lie->name, status_name(status), status == STATUS_OK ? "" : life.failure.text);
  life_status(peer);
  assert_int_equal(life.status.weights, 0);
  assert_int_equal(life.status.devices[0].memory_used, 0);
  assert_int_equal(life.status.devices[0].restarts, 0);
  close(peer);
  life_end();
}

static void no_answer_is_taken_on_trust(void **state) {
  for (size_t i = 0; i < sizeof lies / sizeof *lies; i++)
    tell(&lies[i]);
}

/* The first loader stands still, the next are as they should be. */
static const char *begin_with_a_slow_one(void) {
  static char path[64];
  snprintf(path, sizeof path, "%s/first", life.folder);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fclose(file);
  life.config.loaders_max = 1;
  setenv("GEMMD_TEST_FIRST", path, 1);
  life_begin();
  unsetenv("GEMMD_TEST_FIRST");
  return path;
}

static void send_load(int peer, uint32_t id) {
  const struct message_weight_load request = peer_load("w");
  int file = peer_file(N, K, 1);
  peer_send(peer, id, COMMAND_weight_load, &message_weight_load_type, &request, &file, 1);
  close(file);
}

static void a_client_that_leaves_takes_its_loader_along(void **state) {
  struct message_weight_info info;
  const char *path = begin_with_a_slow_one();
  int leaver = life_client(), other = life_client();
  send_load(leaver, 1);
  while (access(path, F_OK) == 0) /* until its loader runs */
    life_status(other);
  close(leaver);
  struct message_weight_load request = peer_load("w");
  int file = peer_file(LARGE, LARGE, 1); /* there is one place for a loader of such */
  assert_int_equal(peer_ask(other, COMMAND_weight_load, &request, &file, 1, &info, &life.failure), STATUS_OK);
  close(file);
  close(other);
  life_end();
}

/* A connection of another user. */
static int client_as(uid_t user) {
  assert_int_equal(seteuid(user), 0);
  int peer = peer_connect(&life.config);
  assert_int_equal(seteuid(0), 0);
  peer_hello(peer);
  return peer;
}

static void send_large(int peer, int file, uint32_t id, const char *whose) {
  char name[32];
  snprintf(name, sizeof name, "%s.%u", whose, id);
  const struct message_weight_load request = peer_load(name);
  peer_send(peer, id, COMMAND_weight_load, &message_weight_load_type, &request, &file, 1);
}

/* Replies that lie there. */
static int replies_waiting(int peer) {
  struct pollfd readable = {.fd = peer, .events = POLLIN};
  static struct packet packet;
  struct error error;
  int count = 0;
  for (; poll(&readable, 1, 0) == 1; count++)
    assert_int_equal(transport_receive(peer, &packet, &error), STATUS_OK);
  return count;
}

/* One user's loads, of which the first stands still, cost another user nothing where his are small, and a turn where
 * they are not. */
static void users_take_turns(void **state) {
  enum { ALICE = 54331, BOB = 54332, QUEUED = 12 };
  struct message_weight_info info;
  static struct peer_reply reply;
  if (geteuid() != 0)
    skip();
  assert_int_equal(chmod(life.folder, 0755), 0);
  life.config.socket_mode = 0666;
  const char *path = begin_with_a_slow_one();
  int slow = client_as(ALICE), alice = client_as(ALICE), bob = client_as(BOB), watcher = life_client();
  int large = peer_file(LARGE, LARGE, 1);
  send_large(slow, large, 1, "slow");
  while (access(path, F_OK) == 0)
    life_status(watcher);
  for (uint32_t id = 1; id <= QUEUED; id++)
    send_large(alice, large, id, "alice");
  life_status(alice); /* they are in the line */
  assert_int_equal(life_load(bob, "small", 1, false, &info), STATUS_OK);
  assert_int_equal(info.owner, BOB);
  send_large(bob, large, 1000, "bob");
  life_status(watcher);
  close(slow);
  peer_receive(bob, 1000, &message_weight_info_type, &info, &reply);
  assert_int_equal(reply.status, STATUS_OK);
  assert_true(replies_waiting(alice) <= QUEUED / 3);
  close(large);
  close(alice);
  close(bob);
  close(watcher);
  life_end();
}

static void a_session_has_so_many_loads_at_a_time(void **state) {
  enum { MOST = 16 };
  static struct peer_reply reply;
  const char *path = begin_with_a_slow_one();
  int peer = life_client();
  for (uint32_t id = 2; id < 2 + MOST + 1; id++)
    send_load(peer, id);
  peer_receive(peer, 2 + MOST, NULL, NULL, &reply);
  assert_int_equal(reply.status, STATUS_BUSY);
  assert_non_null(strstr(reply.error.text, "16 loads of this session"));
  close(peer);
  life_end();
  unlink(path); /* still there where its loader was ended before it came so far */
}

int main(int count, char **words) {
  const char *lie = getenv("GEMMD_TEST_LIE"), *first = getenv("GEMMD_TEST_FIRST");
  if (first != NULL && count > 1 && strcmp(words[1], "--load") == 0 && unlink(first) == 0)
    raise(SIGSTOP);
  if (lie != NULL && count > 1 && strcmp(words[1], "--load") == 0)
    load_as(lie);
  peer_main(count, words);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(no_answer_is_taken_on_trust, life_configure, life_clean),
      cmocka_unit_test_setup_teardown(a_client_that_leaves_takes_its_loader_along, life_configure, life_clean),
      cmocka_unit_test_setup_teardown(users_take_turns, life_configure, life_clean),
      cmocka_unit_test_setup_teardown(a_session_has_so_many_loads_at_a_time, life_configure, life_clean),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
