/* worker_spare = 1: a second process stands ready, serves when the first has gone, and does no harm before. */
#include "client/gemmclient.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/product.h"
#include "tests/support/daemon/status.h"
#include "tests/support/messages/raw.h"
#include "tests/support/reference/checkpoint.h"
#include "tests/support/reference/oracle.h"
#include "tests/support/system/hold.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const struct gemm_weight shape = {96, 256, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0};
static struct oracle_weight weight;
static struct daemon daemon_under_test;
static gemmd_session *session;
static gemmd_weight *handle;

/* Loads the weight and deletes its file. */
static void begin(const char *options) {
  const gemmd_load load = {.name = "w", .tensor = "w", .format = GEMMD_FORMAT_INT8, .device = -1};
  daemon_make(&daemon_under_test, options);
  const char *path = daemon_path(&daemon_under_test, "model.safetensors");
  oracle_weight_make(&weight, &shape, 1);
  checkpoint_write_one(path, "w", &weight);
  daemon_start(&daemon_under_test);
  session = daemon_join(&daemon_under_test, NULL);
  expect_ok(session, gemmd_weight_load_file(session, path, &load, NULL));
  assert_int_equal(unlink(path), 0);
  expect_ok(session, gemmd_weight_open(session, "w", &handle));
}

static void end(void) {
  gemmd_disconnect(session);
  daemon_end(&daemon_under_test);
  oracle_weight_free(&weight);
}

static void expect_product(void) {
  struct product_request request = {.weight = &weight, .m = 5, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 3};
  assert_true(product_run(session, handle, &request));
}

static gemmd_device_info device(void) {
  gemmd_daemon_info info;
  expect_ok(session, gemmd_daemon_status(session, &info));
  return info.device[0];
}

/* The child of gemmd that is not the worker; 0 where there is none. */
static pid_t find_spare(void) {
  char path[64];
  int child;
  pid_t worker = (pid_t)device().pid, spare = 0;
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)daemon_under_test.pid, (int)daemon_under_test.pid);
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  while (fscanf(file, "%d", &child) == 1)
    if (child != worker)
      spare = child;
  fclose(file);
  return spare;
}

/* One that has opened its device. */
static pid_t await_spare(int opened) {
  while (daemon_log_count(&daemon_under_test, "backend ") < opened)
    assert_int_equal(kill(daemon_under_test.pid, 0), 0);
  pid_t spare;
  do
    spare = find_spare();
  while (spare == 0);
  return spare;
}

static void kill_worker(void) {
  assert_int_equal(kill((pid_t)device().pid, SIGKILL), 0);
}

static void it_serves_when_the_worker_has_gone(void **state) {
  begin("worker_spare = 1\n");
  expect_product();
  for (uint32_t i = 1; i <= 3; i++) {
    pid_t spare = await_spare(1);
    kill_worker();
    expect_product();
    assert_int_equal(device().pid, spare);
    assert_int_equal(device().restarts, i);
  }
  end();
}

static void it_may_die_by_itself(void **state) {
  begin("worker_spare = 1\n");
  pid_t spare = await_spare(1);
  gemmd_device_info before = device();
  assert_int_equal(kill(spare, SIGKILL), 0);
  while (find_spare() == spare)
    expect_product();
  assert_int_equal(device().pid, before.pid);
  assert_int_equal(device().restarts, 0);
  kill_worker();
  expect_product();
  assert_int_equal(device().restarts, 1);
  end();
}

/* It has said that it is ready, and answers no more. */
static void it_may_hang(void **state) {
  begin("worker_spare = 1\nworker_timeout_s = 1\n");
  pid_t spare = await_spare(2 + 1); /* which the supervisor says of the first, too */
  hold_process(spare);
  kill_worker();
  expect_product();
  assert_true(device().restarts >= 2);
  assert_int_not_equal(device().pid, spare);
  end();
}

/* gemmd ends, or is replaced, with both. */
static void it_goes_with_gemmd(void **state) {
  begin("worker_spare = 1\n");
  pid_t spare = await_spare(1);
  daemon_upgrade(&daemon_under_test);
  expect_product();
  assert_int_equal(kill(spare, 0), -1);
  assert_int_not_equal(await_spare(1), spare);
  expect_product();
  end();
}

/* The worker is dead to its supervisor, which has another at hand, and not yet reaped: what it has begun may still be
 * written into memory of clients, who therefore hear nothing. */
static void nothing_is_said_of_a_death_before_its_end(void **state) {
  struct message_weight_name name = {.name = "w"};
  struct message_head head = {.kind = MESSAGE_REQUEST, .id = 1000, .code = COMMAND_weight_open};
  struct pollfd answered = {.events = POLLIN};
  struct raw_session raw;
  struct raw_reply reply;
  struct message_weight_info info;
  uint8_t bytes[1024];
  size_t length;
  struct error error;
  begin("worker_spare = 1\n");
  _Atomic bool *held = clients_share(sizeof *held);
  raw_open(&raw, daemon_under_test.socket, 4, "w");
  await_spare(2 + 1); /* which the supervisor says of the first, too */
  pid_t worker = (pid_t)device().pid;
  hold_process(worker); /* so that it answers no more */
  assert_int_equal(message_encode(&head, &message_weight_name_type, &name, bytes, sizeof bytes, &length, &error),
                   STATUS_OK);
  raw_send(raw.socket, bytes, length, NULL, 0);
  pid_t holder = hold_corpse(worker, held);
  while (!atomic_load(held))
    assert_int_equal(waitpid(holder, NULL, WNOHANG), 0);
  assert_int_equal(kill(worker, SIGKILL), 0);
  while (strcmp(device().state, "starting") != 0)
    continue;
  answered.fd = raw.socket;
  assert_int_equal(device().restarts, 0);
  assert_int_equal(ring_client_worker_state(&raw.ring), RING_WORKER_READY);
  assert_int_equal(poll(&answered, 1, 0), 0);
  assert_int_equal(kill(holder, SIGKILL), 0);
  assert_int_equal(waitpid(holder, NULL, 0), holder);
  assert_true(raw_receive(raw.socket, head.id, &message_weight_info_type, &info, &reply));
  assert_int_equal(reply.status, STATUS_OK);
  expect_product();
  assert_int_equal(device().restarts, 1);
  assert_int_not_equal(device().pid, worker);
  raw_close(&raw);
  end();
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(it_serves_when_the_worker_has_gone),
                                     cmocka_unit_test(it_may_die_by_itself), cmocka_unit_test(it_may_hang),
                                     cmocka_unit_test(it_goes_with_gemmd),
                                     cmocka_unit_test(nothing_is_said_of_a_death_before_its_end)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
