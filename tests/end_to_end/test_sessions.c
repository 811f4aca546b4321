/* Sessions that do not end as others do: clients that are killed, forks that let go of what is their parent's, and a
 * daemon that lives for one session. */
#include "client/gemmclient.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/layers.h"
#include "tests/support/daemon/product.h"
#include "tests/support/daemon/status.h"
#include "tests/support/system/nap.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
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
  (void)state;
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
  (void)state;
  gemmd_session *session = daemon_join(&layers.daemon, NULL);
  gemmd_weight *handle;
  expect_ok(session, gemmd_weight_open(session, layers_name(2), &handle));
  expect_right_after_a_fork(session, handle);
  gemmd_disconnect(session);
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
  (void)state;
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
      cmocka_unit_test_teardown(an_embedded_daemon, layers_as_before),
  };
  return cmocka_run_group_tests(tests, layers_start, layers_stop);
}
