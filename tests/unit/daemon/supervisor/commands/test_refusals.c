/* A worker that cannot go on with a weight of the one before, as after an upgrade that reads its layout no more: that
 * weight is lost and nothing else is, but for failures that are not the weight's. Workers are this program, with a
 * thread between supervisor and worker that changes what is asked, or answers itself. */
#include "tests/support/messages/life.h"
#include "tests/support/system/nap.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { CONTROL_FD = 3, UNKNOWN_LAYOUT = 0x7fffff00 };

/* ---- between supervisor and worker */

static int outside, inside;
static long device_here;
static const char *plan_path;

static void pass(int socket, const void *bytes, size_t length, const int *fds, size_t fd_count) {
  struct pollfd writable = {.fd = socket, .events = POLLOUT};
  struct error error;
  enum status status;
  while ((status = transport_send(socket, bytes, length, fds, fd_count, &error)) == STATUS_BUSY)
    poll(&writable, 1, -1);
  if (status != STATUS_OK)
    _exit(1);
}

/* The status with which this weight is to be refused here; OK: it is not. Out of memory is a worker only once. */
static enum status planned(uint32_t weight) {
  unsigned refused = 0, status = STATUS_OK;
  long device = -1;
  FILE *file = fopen(plan_path, "r");
  bool read = file != NULL && fscanf(file, "%u %ld %u", &refused, &device, &status) == 3;
  if (file != NULL)
    fclose(file);
  if (!read || refused != weight || device != device_here)
    return STATUS_OK;
  if (status == STATUS_NOMEM && unlink(plan_path) != 0)
    return STATUS_OK;
  return (enum status)status;
}

/* UNSUPPORTED is left to the worker, which is asked for a layout that it does not know. */
static void pass_attach(const struct message_head *head, struct message_body body) {
  static uint8_t bytes[LIMIT_MESSAGE_BYTES];
  struct message_weight_place place;
  struct error error, refusal;
  size_t length;
  if (message_decode_body(body, &message_weight_place_type, &place, &error) != STATUS_OK)
    _exit(1);
  enum status status = planned(place.weight);
  if (status == STATUS_UNSUPPORTED)
    place.layout = UNKNOWN_LAYOUT;
  if (status == STATUS_OK || status == STATUS_UNSUPPORTED) {
    if (message_encode(head, &message_weight_place_type, &place, bytes, sizeof bytes, &length, &error) != STATUS_OK)
      _exit(1);
    pass(inside, bytes, length, NULL, 0);
    return;
  }
  (void)error_set(&refusal, status, "as the test wants it");
  if (message_encode_failure(head->id, &refusal, 0, bytes, sizeof bytes, &length, &error) != STATUS_OK)
    _exit(1);
  pass(outside, bytes, length, NULL, 0);
}

/* False at the end. */
static bool pass_one(int from, int to) {
  static struct packet packet;
  struct message_head head;
  struct message_body body;
  struct error error;
  enum status status = transport_receive(from, &packet, &error);
  if (status != STATUS_OK)
    return status == STATUS_BUSY;
  bool attach = from == outside &&
                message_decode_head(packet.bytes, packet.length, &head, &body, &error) == STATUS_OK &&
                head.kind == MESSAGE_REQUEST && head.code == COMMAND_weight_attach;
  if (attach)
    pass_attach(&head, body);
  else
    pass(to, packet.bytes, packet.length, packet.fds, packet.fd_count);
  packet_close(&packet);
  return true;
}

static void *relay(void *nothing) {
  struct pollfd fds[] = {{.fd = outside, .events = POLLIN}, {.fd = inside, .events = POLLIN}};
  while (pass_one(outside, inside) && pass_one(inside, outside))
    poll(fds, 2, -1);
  shutdown(inside, SHUT_RDWR); /* either side's end is the other's */
  shutdown(outside, SHUT_RDWR);
  return NULL;
}

static void stand_between(void) {
  int pair[2];
  pthread_t thread;
  outside = dup(CONTROL_FD);
  if (outside < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0 ||
      dup2(pair[1], CONTROL_FD) != CONTROL_FD || close(pair[1]) != 0)
    _exit(1);
  inside = pair[0];
  if (pthread_create(&thread, NULL, relay, NULL) != 0)
    _exit(1);
}

/* ---- the tests */

static char path[64];

static void begin(uint32_t devices) {
  life.config.devices = devices;
  snprintf(path, sizeof path, "%s/refused", life.folder);
  setenv("GEMMD_TEST_REFUSED", path, 1);
  life_begin();
  unsetenv("GEMMD_TEST_REFUSED");
}

static void end(void) {
  life_end();
  unlink(path);
}

/* From here on, until there is another plan. Weights are numbered from 1 on, in the order of their loads. */
static void plan_refusal(uint32_t weight, uint32_t device, enum status status) {
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  assert_true(fprintf(file, "%u %u %u\n", weight, device, (unsigned)status) > 0);
  assert_int_equal(fclose(file), 0);
}

static void kill_worker(int peer, uint32_t device) {
  assert_int_equal(kill((pid_t)life_wait_for(peer, device, 0, "ready")->pid, SIGKILL), 0);
}

/* One that is given up never becomes ready. */
static void await_restart(int peer, uint32_t device, uint32_t restarts) {
  const struct message_device_status *now;
  do {
    nap_shortly();
    now = &life_status(peer)->devices[device];
    assert_string_not_equal(now->state, "failed");
  } while (now->restarts < restarts || strcmp(now->state, "ready") != 0);
  assert_int_equal(now->restarts, restarts);
}

/* The second weight and whoever uses it notice nothing; of the first nothing is left. */
static void refuse_first(enum status status) {
  struct message_weight_info first, second;
  begin(1);
  int user = life_client(), other = life_client();
  peer_arena(user, 4);
  peer_arena(other, 4);
  assert_int_equal(life_load(other, "first", 1, false, &first), STATUS_OK);
  assert_int_equal(life_load(other, "again", 1, false, &first), STATUS_OK);
  assert_int_equal(life_load(other, "second", 2, false, &second), STATUS_OK);
  assert_int_equal(life_ask_name(user, COMMAND_weight_open, "first", NULL), STATUS_OK);
  assert_int_equal(life_ask_name(other, COMMAND_weight_open, "second", NULL), STATUS_OK);
  plan_refusal(1, 0, status);
  kill_worker(other, 0);
  await_restart(other, 0, 1);
  peer_expect_end(user);
  assert_int_equal(life_ask_name(other, COMMAND_weight_info, "first", NULL), STATUS_NOT_FOUND);
  assert_int_equal(life_ask_name(other, COMMAND_weight_open, "again", NULL), STATUS_NOT_FOUND);
  while (life_status(other)->weights != 1 || life.status.devices[0].memory_used != second.bytes)
    nap_shortly(); /* until the session that had it open has gone */
  assert_int_equal(life.status.names, 1);
  assert_int_equal(life_ask_name(other, COMMAND_weight_open, "second", NULL), STATUS_OK);
  assert_int_equal(life_load(other, "first", 1, false, &first), STATUS_OK);
  assert_false(first.shared);
  kill_worker(other, 0);
  await_restart(other, 0, 2);
  assert_int_equal(life.status.weights, 2);
  close(user);
  close(other);
  end();
}

static void a_layout_that_is_not_known_costs_its_weight(void **state) {
  refuse_first(STATUS_UNSUPPORTED);
}

static void a_place_that_is_wrong_costs_its_weight(void **state) {
  refuse_first(STATUS_INVALID);
}

/* As the first device refuses it, or the last; those that are attached elsewhere are given back. */
static void refuse_part(enum message_placement placement, uint32_t device) {
  struct message_weight_info info;
  begin(2);
  int user = life_client(), other = life_client(), file = peer_file(300, 200, 1);
  struct message_weight_load request = peer_load("parts");
  request.placement = placement;
  request.device = -1;
  assert_int_equal(peer_ask(other, COMMAND_weight_load, &request, &file, 1, &info, &life.failure), STATUS_OK);
  close(file);
  assert_int_equal(info.parts_count, 2);
  assert_int_equal(life_load(other, "whole", 2, false, &info), STATUS_OK);
  uint32_t holder = info.parts[0].device;
  peer_arena(user, 4);
  assert_int_equal(life_ask_name(user, COMMAND_weight_open, "parts", NULL), STATUS_OK);
  plan_refusal(1, device, STATUS_UNSUPPORTED);
  kill_worker(other, device);
  await_restart(other, device, 1);
  assert_int_equal(life.status.devices[1 - device].restarts, 0);
  peer_expect_end(user);
  assert_int_equal(life_ask_name(other, COMMAND_weight_info, "parts", NULL), STATUS_NOT_FOUND);
  while (life_status(other)->weights != 1 || life.status.devices[1 - holder].memory_slabs != 0 ||
         life.status.devices[holder].memory_used != info.bytes)
    nap_shortly();
  assert_int_equal(life.status.devices[1 - device].restarts, 0);
  close(user);
  close(other);
  end();
}

static void one_part_costs_the_whole_weight(void **state) {
  for (uint32_t device = 0; device < 2; device++)
    refuse_part(PLACEMENT_SPLIT, device);
}

static void one_copy_costs_the_others(void **state) {
  for (uint32_t device = 0; device < 2; device++)
    refuse_part(PLACEMENT_REPLICAS, device);
}

/* The next worker may have the memory that this one lacked. */
static void what_is_the_workers_fault_costs_the_worker(void **state) {
  struct message_weight_info info;
  begin(1);
  int user = life_client();
  peer_arena(user, 4);
  assert_int_equal(life_load(user, "a", 1, false, &info), STATUS_OK);
  assert_int_equal(life_ask_name(user, COMMAND_weight_open, "a", NULL), STATUS_OK);
  plan_refusal(1, 0, STATUS_NOMEM);
  kill_worker(user, 0);
  await_restart(user, 0, 2);
  assert_int_equal(life.status.devices[0].memory_used, info.bytes);
  assert_int_equal(life_ask_name(user, COMMAND_weight_open, "a", NULL), STATUS_OK);
  close(user);
  end();
}

int main(int count, char **words) {
  plan_path = getenv("GEMMD_TEST_REFUSED");
  if (plan_path != NULL && count > 2 && strcmp(words[1], "--worker") == 0) {
    device_here = strtol(words[2], NULL, 10);
    stand_between();
  }
  peer_main(count, words);
#define LIFE(test) cmocka_unit_test_setup_teardown(test, life_configure, life_clean)
  const struct CMUnitTest tests[] = {
      LIFE(a_layout_that_is_not_known_costs_its_weight),
      LIFE(a_place_that_is_wrong_costs_its_weight),
      LIFE(one_part_costs_the_whole_weight),
      LIFE(one_copy_costs_the_others),
      LIFE(what_is_the_workers_fault_costs_the_worker),
  };
#undef LIFE
  return cmocka_run_group_tests(tests, NULL, NULL);
}
