/* Sessions that do not end as others do: clients that are killed, forks that let go of what is their parent's, daemons
 * that come back without the weights that were open, and one that lives for one session. */
#include "client/gemmclient.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/layers.h"
#include "tests/support/daemon/product.h"
#include "tests/support/daemon/status.h"
#include "tests/support/reference/checkpoint.h"
#include "tests/support/reference/oracle.h"
#include "tests/support/system/nap.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Submits and never looks again. */
static int client_that_stalls(int index, void *user) {
  _Atomic int *ready = user;
  gemmd_session *session = daemon_join(&layers.daemon, NULL);
  gemmd_weight *handle;
  struct product product;
  struct product_request request = {
      .weight = &layers.weights[5], .m = 64, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = (uint64_t)index};
  if (gemmd_weight_open(session, layers_name(5), &handle) != GEMMD_OK || !product_make(&product, session, &request))
    return 1;
  for (uint64_t ticket; gemmd_submit(handle, &product.product, &ticket) == GEMMD_OK;)
    ;
  atomic_fetch_add(ready, 1);
  for (;;)
    pause();
}

static void killed_clients_leave_nothing_behind(void **state) {
  enum { VICTIMS = 3 };
  struct clients clients;
  gemmd_daemon_info before, info;
  gemmd_session *session = daemon_join(&layers.daemon, NULL);
  _Atomic int *ready = clients_share(sizeof *ready);
  expect_ok(session, gemmd_daemon_status(session, &before));
  clients_start(&clients, VICTIMS, client_that_stalls, (void *)ready);
  for (; atomic_load(ready) < VICTIMS; nap_shortly())
    expect_ok(session, gemmd_ping(session, NULL));
  expect_ok(session, gemmd_daemon_status(session, &info));
  assert_int_equal(info.sessions, before.sessions + VICTIMS);
  assert_true(info.arena_bytes > before.arena_bytes);
  for (int i = 0; i < VICTIMS; i++) {
    assert_int_equal(kill(clients.pids[i], SIGKILL), 0);
    assert_int_equal(waitpid(clients.pids[i], NULL, 0), clients.pids[i]);
  }
  do {
    nap_shortly();
    expect_ok(session, gemmd_daemon_status(session, &info));
  } while (info.sessions > before.sessions || info.arena_bytes > before.arena_bytes); /* ends unless something leaks */
  gemmd_weight *handle;
  struct product_request request = {
      .weight = &layers.weights[5], .m = 3, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 8};
  expect_ok(session, gemmd_weight_open(session, layers_name(5), &handle));
  assert_true(product_run(session, handle, &request));
  gemmd_disconnect(session);
}

/* A fork of this process gives back what it has of the session; that goes on. */
static void expect_right_after_a_fork(gemmd_session *session, gemmd_weight *weight) {
  struct product_request request = {
      .weight = &layers.weights[2], .m = 3, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 2};
  int status;
  assert_true(product_run(session, weight, &request));
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    gemmd_disconnect(session);
    _exit(0);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  assert_true(product_run(session, weight, &request));
  expect_ok(session, gemmd_ping(session, NULL));
}

static void a_child_lets_go_of_the_session(void **state) {
  gemmd_session *session = daemon_join(&layers.daemon, NULL);
  gemmd_weight *handle;
  expect_ok(session, gemmd_weight_open(session, layers_name(2), &handle));
  expect_right_after_a_fork(session, handle);
  gemmd_disconnect(session);
}

/* ---- daemons that come back without weights */

enum { FIRST, SECOND, OPEN, RETURNS = 5 };
static const char *const orphan_names[OPEN] = {"first", "second"};
static const struct gemm_weight orphan_shapes[OPEN] = {{256, 512, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0},
                                                       {128, 256, GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK, 0, 0}};

/* A client of a daemon that is killed: weights, a product by each, and a plan of both. */
static struct orphan {
  struct daemon daemon;
  struct oracle_weight made[OPEN];
  gemmd_session *session;
  gemmd_weight *open[OPEN];
  struct product products[OPEN], planned;
  gemmd_plan *plan;
  float expected[3 * 128]; /* by the plan */
} orphan;

static void orphan_load(gemmd_session *session, int i) {
  const char *path = daemon_path(&orphan.daemon, "model.safetensors");
  const gemmd_load load = {.name = orphan_names[i],
                           .tensor = orphan_names[i],
                           .format = (enum gemmd_format)orphan_shapes[i].format,
                           .device = -1,
                           .replace = true};
  static struct checkpoint checkpoint;
  checkpoint = (struct checkpoint){0};
  checkpoint_add_weight(&checkpoint, orphan_names[i], &orphan.made[i]);
  checkpoint_write(&checkpoint, path);
  expect_ok(session, gemmd_weight_load_file(session, path, &load, NULL));
}

static void orphan_make(void) {
  daemon_make(&orphan.daemon, "");
  daemon_start(&orphan.daemon);
  orphan.session = daemon_join(&orphan.daemon, NULL);
  gemmd_step steps[OPEN];
  for (int i = 0; i < OPEN; i++) {
    const struct product_request request = {
        .weight = &orphan.made[i], .m = 3, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 2};
    oracle_weight_make(&orphan.made[i], &orphan_shapes[i], (uint64_t)i + 1);
    orphan_load(orphan.session, i);
    expect_ok(orphan.session, gemmd_weight_open(orphan.session, orphan_names[i], &orphan.open[i]));
    assert_true(product_make(&orphan.products[i], orphan.session, &request));
    steps[i] = (gemmd_step){.weight = orphan.open[i], .y_type = GEMMD_F32};
  }
  const struct product_request request = {
      .weight = &orphan.made[FIRST], .m = 3, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 4};
  assert_true(product_make(&orphan.planned, orphan.session, &request));
  expect_ok(orphan.session, gemmd_plan_create(orphan.session, steps, OPEN, &orphan.plan));
  expect_ok(orphan.session, gemmd_plan_run(orphan.plan, &orphan.planned.product));
  memcpy(orphan.expected, orphan.planned.product.y, sizeof orphan.expected);
}

static void orphan_free(void) {
  gemmd_plan_free(orphan.plan);
  product_free(&orphan.planned, orphan.session);
  for (int i = 0; i < OPEN; i++)
    product_free(&orphan.products[i], orphan.session);
  gemmd_disconnect(orphan.session);
  daemon_end(&orphan.daemon);
  for (int i = 0; i < OPEN; i++)
    oracle_weight_free(&orphan.made[i]);
}

static void orphan_lose(void) {
  daemon_kill(&orphan.daemon);
  daemon_start(&orphan.daemon);
}

static void expect_missing(int status, const char *sentence) {
  assert_int_equal(status, GEMMD_NOT_FOUND);
  assert_non_null(strstr(gemmd_error(orphan.session), sentence));
}

static void expect_served(int i) {
  memset(orphan.products[i].product.y, 0xfd, (size_t)(3 * orphan_shapes[i].n) * sizeof(float));
  expect_ok(orphan.session, gemmd_matmul(orphan.open[i], &orphan.products[i].product));
  assert_true(product_right(&orphan.products[i]));
}

static void expect_planned(void) {
  memset(orphan.planned.product.y, 0xfd, sizeof orphan.expected);
  expect_ok(orphan.session, gemmd_plan_run(orphan.plan, &orphan.planned.product));
  assert_memory_equal(orphan.planned.product.y, orphan.expected, sizeof orphan.expected);
}

/* What is missing is named, and serves when it is loaded again: the second weight before the first, so that its handle
 * is the one that the first had. */
static void weights_that_are_gone_serve_when_they_are_back(void **state) {
  orphan_make();
  for (int i = 0; i < RETURNS; i++) {
    gemmd_result result;
    uint64_t tickets[2];
    daemon_kill(&orphan.daemon);
    expect_ok(orphan.session, gemmd_submit(orphan.open[FIRST], &orphan.products[FIRST].product, &tickets[0]));
    expect_ok(orphan.session, gemmd_plan_submit(orphan.plan, &orphan.planned.product, &tickets[1]));
    daemon_start(&orphan.daemon);
    for (int j = 0; j < 2; j++)
      expect_missing(gemmd_wait(orphan.session, tickets[j], -1, &result), "no weight \"first\"");
    expect_missing(gemmd_matmul(orphan.open[FIRST], &orphan.products[FIRST].product), "named \"first\"");
    expect_missing(gemmd_matmul(orphan.open[SECOND], &orphan.products[SECOND].product), "named \"second\"");
    expect_missing(gemmd_plan_run(orphan.plan, &orphan.planned.product), "named \"first\"");
    expect_ok(orphan.session, gemmd_ping(orphan.session, NULL));
    orphan_load(orphan.session, SECOND);
    expect_served(SECOND);
    expect_missing(gemmd_matmul(orphan.open[FIRST], &orphan.products[FIRST].product), "named \"first\"");
    expect_missing(gemmd_plan_run(orphan.plan, &orphan.planned.product), "named \"first\"");
    orphan_load(orphan.session, FIRST);
    if (i % 2 == 0)
      expect_planned(); /* which finds it, too */
    expect_served(FIRST);
    expect_served(SECOND);
    expect_planned();
    assert_int_equal(gemmd_resumes(orphan.session), i + 1);
  }
  orphan_free();
}

/* The session goes on while one is missing, and with it closed. */
static void weights_that_stay_away(void **state) {
  gemmd_daemon_info info;
  orphan_make();
  orphan_lose();
  expect_missing(gemmd_matmul(orphan.open[FIRST], &orphan.products[FIRST].product), "weight \"first\"");
  orphan_load(orphan.session, SECOND);
  gemmd_weight_close(orphan.open[FIRST]);
  assert_true(gemmd_plan_run(orphan.plan, &orphan.planned.product) < 0);
  expect_served(SECOND);
  expect_ok(orphan.session, gemmd_daemon_status(orphan.session, &info));
  assert_int_equal(info.names, 1);
  orphan_free();
}

/* Under the same name lies something else of the same shape, until it is replaced. */
static void weights_that_are_others(void **state) {
  gemmd_daemon_info info;
  orphan_make();
  orphan_lose();
  struct oracle_weight mine = orphan.made[FIRST];
  oracle_weight_make(&orphan.made[FIRST], &orphan_shapes[FIRST], 77);
  orphan_load(orphan.session, FIRST);
  for (int i = 0; i < 2; i++)
    expect_missing(gemmd_matmul(orphan.open[FIRST], &orphan.products[FIRST].product),
                   "the weight \"first\" is another one at the next daemon");
  oracle_weight_free(&orphan.made[FIRST]);
  orphan.made[FIRST] = mine;
  orphan_load(orphan.session, FIRST);
  expect_served(FIRST);
  expect_ok(orphan.session, gemmd_daemon_status(orphan.session, &info));
  assert_int_equal(info.weights, 1); /* nothing holds the other one */
  orphan_free();
}

/* ---- a daemon of its own */

/* What the service manager of this process would hear by. */
static int notify_open(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s", daemon_path(&layers.daemon, "manager"));
  int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  assert_true(fd >= 0);
  assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
  assert_int_equal(setenv("NOTIFY_SOCKET", address.sun_path, 1), 0);
  return fd;
}

static void an_embedded_daemon(void **state) {
  char said;
  int manager = notify_open();
  const char *build = getenv("GEMMD_BUILD");
  char program[512];
  snprintf(program, sizeof program, "%s/gemmd", build != NULL ? build : "build");
  assert_int_equal(setenv("GEMMD_BINARY", program, 1), 0);
  FILE *file = fopen(daemon_path(&layers.daemon, "embedded.conf"), "w");
  assert_non_null(file);
  fprintf(file, "backend = cpu\nlog_level = error\n");
  assert_int_equal(fclose(file), 0);
  char address[256];
  snprintf(address, sizeof address, "embedded:%s", daemon_path(&layers.daemon, "embedded.conf"));
  gemmd_session *session = NULL;
  gemmd_weight *handle;
  expect_ok(session, gemmd_connect(&session, address, NULL));
  layers_load(session, layers_name(2), "own", GEMMD_FORMAT_INT8);
  expect_ok(session, gemmd_weight_open(session, "own", &handle));
  expect_right_after_a_fork(session, handle);
  gemmd_disconnect(session);
  assert_int_equal(recv(manager, &said, 1, MSG_DONTWAIT), -1); /* as that it stops */
  assert_int_equal(unsetenv("NOTIFY_SOCKET"), 0);
  close(manager);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(killed_clients_leave_nothing_behind, layers_as_before),
      cmocka_unit_test_teardown(a_child_lets_go_of_the_session, layers_as_before),
      cmocka_unit_test(weights_that_are_gone_serve_when_they_are_back),
      cmocka_unit_test(weights_that_stay_away),
      cmocka_unit_test(weights_that_are_others),
      cmocka_unit_test_teardown(an_embedded_daemon, layers_as_before),
  };
  return cmocka_run_group_tests(tests, layers_start, layers_stop);
}
