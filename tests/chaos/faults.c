/* One fault after the other under the same load, and what clients saw of each: the table that `make faults` prints.
 * Every product is checked; a fault is over when every client has had new right products. */
#include "client/gemmclient.h"
#include "pauses.h"
#include "proto/clock.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/product.h"
#include "tests/support/daemon/status.h"
#include "tests/support/messages/raw.h"
#include "tests/support/reference/checkpoint.h"
#include "tests/support/reference/oracle.h"
#include "tests/support/system/hold.h"
#include "tests/support/system/nap.h"

#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { CLIENTS = 4, M = 64 };

static const struct gemm_weight shape = {300, 512, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0};
static struct oracle_weight weight;
static struct daemon daemon_under_test;
static struct pauses *pauses;
static _Atomic bool *held, *flooded;

static gemmd_session *join(gemmd_weight **handle) {
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  if (gemmd_weight_open(session, "w", handle) != GEMMD_OK) {
    fprintf(stderr, "%s\n", gemmd_error(session));
    exit(1);
  }
  return session;
}

static int client(int index, void *user) {
  struct product product;
  struct product_request request = {
      .weight = &weight, .m = M, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = (uint64_t)index};
  gemmd_weight *handle;
  gemmd_session *session = join(&handle);
  if (!product_make(&product, session, &request))
    return 1;
  while (!atomic_load(&pauses->stop)) {
    memset(product.product.y, 0xfd, M * (size_t)shape.n * sizeof(float));
    uint64_t begin = clock_ns();
    int status = gemmd_matmul(handle, &product.product);
    pauses_note(pauses, index, clock_ns() - begin, status, status == GEMMD_OK && product_right(&product));
  }
  product_free(&product, session);
  gemmd_disconnect(session);
  return 0;
}

/* ---- the faults */

static gemmd_session *watcher;

static pid_t worker(void) {
  gemmd_daemon_info info;
  assert_int_equal(gemmd_daemon_status(watcher, &info), GEMMD_OK);
  return (pid_t)info.device[0].pid;
}

static void await_ready(void) {
  gemmd_daemon_info info;
  do {
    nap_shortly();
    assert_int_equal(gemmd_daemon_status(watcher, &info), GEMMD_OK);
  } while (strcmp(info.device[0].state, "ready") != 0);
}

static void kill_worker(void) {
  assert_int_equal(kill(worker(), SIGKILL), 0);
}

static void fault_worker(void) {
  assert_int_equal(kill(worker(), SIGSEGV), 0);
}

static void stop_worker(void) {
  hold_process(worker());
}

/* Products without end, so that the engine never sleeps: a thread that is held in its sleep would be no hang. */
static pid_t start_flood(void) {
  enum { FLOOD_M = 4096 };
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid > 0)
    return pid;
  gemmd_weight *handle;
  gemmd_session *session = join(&handle);
  float *x = gemmd_alloc(session, FLOOD_M * (size_t)shape.k * sizeof *x);
  float *y = gemmd_alloc(session, FLOOD_M * (size_t)shape.n * sizeof *y);
  const gemmd_product product = {.m = FLOOD_M, .x = x, .x_type = GEMMD_F32, .y = y, .y_type = GEMMD_F32};
  uint64_t ticket;
  for (;;) {
    while (gemmd_submit(handle, &product, &ticket) == GEMMD_OK)
      continue;
    if (gemmd_wait_any(session, -1, NULL) != GEMMD_OK)
      _exit(1);
    atomic_store(flooded, true);
  }
}

static void hang_device(void) {
  atomic_store(held, false);
  atomic_store(flooded, false);
  pid_t flood = start_flood();
  while (!atomic_load(flooded))
    sched_yield();
  pid_t holder = hold_thread(hold_find(worker(), "engine"), held);
  assert_int_equal(waitpid(holder, NULL, 0), holder);
  assert_int_equal(kill(flood, SIGKILL), 0);
  assert_int_equal(waitpid(flood, NULL, 0), flood);
}

static void upgrade(void) {
  char command[1024];
  const char *build = getenv("GEMMD_BUILD");
  snprintf(command, sizeof command, "%s/gemmd --config %s --upgrade >/dev/null 2>&1", build != NULL ? build : "build",
           daemon_path(&daemon_under_test, "gemmd.conf"));
  assert_int_equal(system(command), 0);
}

static void in_a_client(void (*act)(gemmd_session *session, gemmd_weight *handle, uint8_t *x)) {
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    gemmd_weight *handle;
    gemmd_session *session = join(&handle);
    uint8_t *x = gemmd_alloc(session, M * (size_t)shape.k * sizeof(float));
    float *y = gemmd_alloc(session, M * (size_t)shape.n * sizeof(float));
    gemmd_product product = {.m = M, .x = x, .x_type = GEMMD_F32, .y = y, .y_type = GEMMD_F32};
    uint64_t ticket;
    for (int i = 0; i < 8; i++)
      (void)gemmd_submit(handle, &product, &ticket);
    act(session, handle, x);
    _exit(0);
  }
  assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void die(gemmd_session *session, gemmd_weight *handle, uint8_t *x) {
  kill(getpid(), SIGKILL);
}

static void scribble(gemmd_session *session, gemmd_weight *handle, uint8_t *x) {
  uint64_t random = (uint64_t)getpid();
  for (int i = 0; i < 20000; i++) /* the rings lie right before */
    x[-(int64_t)(oracle_random(&random) % 8192) - 1] = (uint8_t)oracle_random(&random);
}

static void client_dies(void) {
  in_a_client(die);
}

static void client_scribbles(void) {
  in_a_client(scribble);
}

static void client_sends_nonsense(void) {
  static uint64_t random = 1;
  uint8_t bytes[256];
  int socket = raw_connect(daemon_under_test.socket);
  for (size_t i = 0; i < sizeof bytes; i++)
    bytes[i] = (uint8_t)oracle_random(&random);
  bytes[0] = 0x94;
  raw_send(socket, bytes, 1 + oracle_random(&random) % 255, NULL, 0);
  close(socket);
}

static const struct pauses_fault faults[] = {
    {"worker killed (SIGKILL)", kill_worker, await_ready, 100},
    {"worker faults (SIGSEGV), weights verified", fault_worker, await_ready, 50},
    {"worker stopped (SIGSTOP), worker_timeout_s = 1", stop_worker, await_ready, 10},
    {"device hangs under a product, device_timeout_s = 1", hang_device, await_ready, 10},
    {"gemmd upgraded in place (--upgrade)", upgrade, await_ready, 30},
    {"client killed with products under way", client_dies, NULL, 100},
    {"client scribbles over its rings", client_scribbles, NULL, 100},
    {"client sends nonsense", client_sends_nonsense, NULL, 100},
};

static int percent = 100;

static void try_some(const struct pauses_fault *fault) {
  struct pauses_fault some = *fault;
  some.rounds = some.rounds * percent / 100 > 0 ? some.rounds * percent / 100 : 1;
  (void)pauses_try(pauses, &some);
}

static void make_weight(void) {
  const char *path = daemon_path(&daemon_under_test, "model.safetensors");
  gemmd_load load = {.name = "w", .tensor = "w", .format = GEMMD_FORMAT_INT8, .device = -1};
  oracle_weight_make(&weight, &shape, 1);
  checkpoint_write_one(path, "w", &weight);
  assert_int_equal(gemmd_weight_load_file(watcher, path, &load, NULL), GEMMD_OK);
  assert_int_equal(unlink(path), 0); /* what is read again could not be */
}

static void all_faults(void **state) {
  struct clients clients;
  daemon_make(&daemon_under_test, "worker_timeout_s = 1\ndevice_timeout_s = 1\nworker_restarts_max = 1000\n");
  daemon_start(&daemon_under_test);
  assert_int_equal(gemmd_connect(&watcher, daemon_under_test.socket, NULL), GEMMD_OK);
  make_weight();
  pauses = clients_share(sizeof *pauses);
  held = clients_share(sizeof *held);
  flooded = clients_share(sizeof *flooded);
  pauses->clients = CLIENTS;
  clients_start(&clients, CLIENTS, client, NULL);
  pauses_head(pauses);
  try_some(&(struct pauses_fault){"none, for comparison", await_ready, NULL, 50});
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
    try_some(&faults[i]);
  atomic_store(&pauses->stop, true);
  clients_wait(&clients);
  assert_int_equal(atomic_load(&pauses->wrong), 0);
  gemmd_disconnect(watcher);
  daemon_end(&daemon_under_test);
  oracle_weight_free(&weight);
}

int main(int count, char **words) {
  percent = count > 1 ? (int)strtol(words[1], NULL, 10) : 100;
  if (count > 2 || percent < 1 || percent > 100) {
    fprintf(stderr, "usage: faults [PERCENT of the tries]\n");
    return 2;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(all_faults)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
