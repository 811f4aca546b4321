/* gemmd itself is killed, or replaced in place, again and again while several processes compute: they see right
 * products and a pause, and the weights are not read again (their file is gone). */
#include "client/gemmclient.h"
#include "proto/clock.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/manager.h"
#include "tests/support/daemon/product.h"
#include "tests/support/daemon/status.h"
#include "tests/support/reference/checkpoint.h"
#include "tests/support/reference/oracle.h"
#include "tests/support/system/hold.h"
#include "tests/support/system/nap.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static const struct gemm_weight shapes[] = {
    {300, 512, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0},
    {256, 384, GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK, 0, 0},
    {200, 512, GEMM_FORMAT_INT2, GEMM_SCALE_GROUP, 0, 0},
    {192, 512, GEMM_FORMAT_INT4A8, GEMM_SCALE_GROUP, 0, 0},
};
enum { WEIGHTS = 4, CLIENTS = 4, LOSSES = 6, IN_FLIGHT = 6, PROGRESS = 2 * IN_FLIGHT + 1 };
static const char *const names[WEIGHTS] = {"int8", "fp8", "int2", "int4"};

static struct daemon daemon_under_test;
static struct oracle_weight weights[WEIGHTS];
static int served; /* of them: the last takes a backend that has kernels for it */

struct scene {
  _Atomic bool stop;
  _Atomic uint64_t done[CLIENTS];
  _Atomic uint64_t pause_ns;
};

static void write_model(void) {
  static struct checkpoint checkpoint;
  for (int i = 0; i < WEIGHTS; i++)
    checkpoint_add_weight(&checkpoint, names[i], &weights[i]);
  checkpoint_write(&checkpoint, daemon_path(&daemon_under_test, "model.safetensors"));
}

static void make(void) {
  daemon_make(&daemon_under_test, "");
  for (int i = 0; i < WEIGHTS; i++)
    oracle_weight_make(&weights[i], &shapes[i], (uint64_t)i + 1);
  write_model();
}

static void load_all(void) {
  const char *path = daemon_path(&daemon_under_test, "model.safetensors");
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  for (served = 0; served < WEIGHTS; served++) {
    const char *name = names[served];
    gemmd_load request = {
        .name = name, .tensor = name, .format = (enum gemmd_format)shapes[served].format, .device = -1};
    int status = gemmd_weight_load_file(session, path, &request, NULL);
    if (status == GEMMD_UNSUPPORTED && shapes[served].format == GEMM_FORMAT_INT4A8)
      break;
    expect_ok(session, status);
  }
  gemmd_disconnect(session);
  assert_int_equal(unlink(path), 0);
}

static void unmake(void) {
  daemon_remove(&daemon_under_test);
  for (int i = 0; i < WEIGHTS; i++)
    oracle_weight_free(&weights[i]);
}

/* ---- clients */

static bool make_products(gemmd_session *session, struct product *products, int index) {
  for (int i = 0; i < IN_FLIGHT; i++) {
    struct product_request request = {.weight = &weights[i % served],
                                      .m = 1 + (i * 7 + index) % 23,
                                      .x_type = GEMM_F16,
                                      .y_type = GEMM_F32,
                                      .seed = (uint64_t)(index * 100 + i)};
    if (!product_make(&products[i], session, &request))
      return false;
  }
  return true;
}

static bool compute(gemmd_session *session, gemmd_weight **handles, struct product *products, int first, int count) {
  for (int i = first; i < first + count; i++) {
    memset(products[i].product.y, 0xfd, (size_t)(products[i].request.m * shapes[i % served].n) * sizeof(float));
    if (gemmd_submit(handles[i % served], &products[i].product, &products[i].ticket) != GEMMD_OK)
      return false;
  }
  for (int i = first; i < first + count; i++)
    if (gemmd_wait(session, products[i].ticket, -1, NULL) != GEMMD_OK || !product_right(&products[i]))
      return false;
  return true;
}

/* By an event loop, which sleeps on gemmd_fd. */
static bool compute_by_loop(gemmd_session *session, gemmd_weight **handles, struct product *products) {
  memset(products[0].product.y, 0xfd, (size_t)(products[0].request.m * shapes[0].n) * sizeof(float));
  if (gemmd_submit(handles[0], &products[0].product, &products[0].ticket) != GEMMD_OK)
    return false;
  gemmd_result result;
  int status;
  while ((status = gemmd_wait_any(session, 0, &result)) == GEMMD_TIMEOUT) {
    struct pollfd readable = {.fd = gemmd_fd(session), .events = POLLIN};
    if (poll(&readable, 1, 60000) != 1 || gemmd_dispatch(session, 0) != GEMMD_OK)
      return false;
  }
  return status == GEMMD_OK && result.status == GEMMD_OK && product_right(&products[0]);
}

/* The first opens its weights again each time, the second has many products in flight, the third has an event loop, and
 * the last comes and goes. */
static int client(int index, void *user) {
  struct scene *scene = user;
  gemmd_weight *handles[WEIGHTS];
  struct product products[IN_FLIGHT];
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  bool good = make_products(session, products, index);
  for (int i = 0; good && i < served; i++)
    good = gemmd_weight_open(session, names[i], &handles[i]) == GEMMD_OK;
  while (good && !atomic_load(&scene->stop)) {
    uint64_t begin = clock_ns();
    if (index == 1)
      good = compute(session, handles, products, 0, IN_FLIGHT);
    else if (index == 2)
      good = compute_by_loop(session, handles, products);
    else
      good = compute(session, handles, products, 0, 1);
    if (good && index == 0) {
      gemmd_weight_close(handles[0]);
      good = gemmd_weight_open(session, names[0], &handles[0]) == GEMMD_OK;
    }
    uint64_t ns = clock_ns() - begin, longest = atomic_load(&scene->pause_ns);
    while (ns > longest && !atomic_compare_exchange_weak(&scene->pause_ns, &longest, ns))
      continue;
    atomic_fetch_add(&scene->done[index], 1);
    if (good && index == 3) {
      gemmd_weight_info info;
      gemmd_session *guest = NULL;
      const gemmd_options options = {.entries = 1, .arena_bytes = 4096};
      int status = gemmd_connect(&guest, daemon_under_test.socket, &options);
      good = (status == GEMMD_OK && gemmd_weight_stat(guest, names[1], &info) == GEMMD_OK) ||
             gemmd_status_retryable(status); /* a session that was never there is not taken over */
      gemmd_disconnect(guest);
    }
  }
  if (!good)
    fprintf(stderr, "client %d: %s\n", index, gemmd_error(session));
  for (int i = 0; good && i < IN_FLIGHT; i++)
    product_free(&products[i], session);
  gemmd_disconnect(session);
  return good ? 0 : 1;
}

static void await_progress(struct scene *scene, const struct clients *clients) {
  const struct timespec pause = {.tv_nsec = 1000000};
  uint64_t from[CLIENTS];
  for (int i = 0; i < CLIENTS; i++)
    from[i] = atomic_load(&scene->done[i]);
  for (int i = 0; i < CLIENTS; i++)
    while (atomic_load(&scene->done[i]) < from[i] + PROGRESS) {
      siginfo_t ended = {.si_pid = 0};
      assert_int_equal(waitid(P_PID, (id_t)clients->pids[i], &ended, WEXITED | WNOHANG | WNOWAIT), 0);
      assert_int_equal(ended.si_pid, 0);
      nanosleep(&pause, NULL);
    }
}

static void expect_weights(void) {
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  gemmd_daemon_info info;
  expect_ok(session, gemmd_daemon_status(session, &info));
  assert_int_equal(info.names, served);
  assert_int_equal(info.weights, served);
  gemmd_disconnect(session);
}

static struct scene *start_clients(struct clients *clients) {
  struct scene *scene = clients_share(sizeof *scene);
  clients_start(clients, CLIENTS, client, scene);
  await_progress(scene, clients);
  return scene;
}

static void stop_clients(struct scene *scene, struct clients *clients, const char *what) {
  await_progress(scene, clients);
  atomic_store(&scene->stop, true);
  clients_wait(clients);
  print_message("longest wait for a product with %d %s: %.1f ms\n", LOSSES, what,
                (double)atomic_load(&scene->pause_ns) / 1e6);
}

/* ---- the tests */

/* A slab and the catalog: no less, and no more once the catalogs before it have been taken back, which the manager
 * hears of later than the client of its load. Ends by the test's time limit where that never comes. */
static void await_stored(const struct manager *manager) {
  while (atomic_load(&manager->stored) != 2)
    nap_shortly();
}

static void killed_with_descriptors_parked(void **state) {
  make();
  struct manager *manager = manager_start(&daemon_under_test);
  load_all();
  await_stored(manager);
  struct clients clients;
  struct scene *scene = start_clients(&clients);
  for (unsigned i = 0; i < LOSSES; i++) {
    assert_int_equal(kill(atomic_load(&manager->gemmd), SIGKILL), 0);
    manager_await(manager, i + 2);
    await_progress(scene, &clients);
  }
  stop_clients(scene, &clients, "kills of gemmd");
  expect_weights();
  await_stored(manager); /* nothing piles up */
  manager_stop(manager);
  unmake();
}

static void upgraded_under_a_manager(void **state) {
  make();
  struct manager *manager = manager_start(&daemon_under_test);
  load_all();
  await_stored(manager);
  pid_t pid = atomic_load(&manager->gemmd);
  struct clients clients;
  struct scene *scene = start_clients(&clients);
  for (int i = 0; i < LOSSES; i++) {
    daemon_upgrade(&daemon_under_test);
    await_progress(scene, &clients);
  }
  stop_clients(scene, &clients, "upgrades");
  expect_weights();
  assert_int_equal(atomic_load(&manager->gemmd), pid); /* in place */
  assert_int_equal(atomic_load(&manager->starts), 1 + LOSSES);
  await_stored(manager);
  kill(pid, SIGKILL); /* and what was parked before is still good */
  manager_await(manager, 2 + LOSSES);
  expect_weights();
  manager_stop(manager);
  unmake();
}

static void upgraded_without_a_manager(void **state) {
  make();
  daemon_start(&daemon_under_test);
  load_all();
  struct clients clients;
  struct scene *scene = start_clients(&clients);
  for (int i = 0; i < LOSSES; i++) {
    daemon_upgrade(&daemon_under_test);
    await_progress(scene, &clients);
  }
  stop_clients(scene, &clients, "upgrades");
  expect_weights();
  assert_int_equal(daemon_fail_to_start(&daemon_under_test), 1); /* the lock went along */
  daemon_stop(&daemon_under_test);
  unmake();
}

/* Handles of the next daemon are others: here each weight gets the one that the other had. */
static void an_error_from_before_names_its_weight(void **state) {
  struct product_request request = {.weight = &weights[0], .m = 3, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 2};
  struct product product;
  gemmd_weight *first, *second;
  int status = GEMMD_OK;
  make();
  struct manager *manager = manager_start(&daemon_under_test);
  load_all();
  await_stored(manager);
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  expect_ok(session, gemmd_weight_open(session, names[0], &first));
  expect_ok(session, gemmd_weight_open(session, names[1], &second));
  assert_true(product_make(&product, session, &request));
  product.product.deadline_us = 1;
  for (unsigned starts = 1; status == GEMMD_OK; starts++) { /* until the worker takes longer than that to begin */
    expect_ok(session, gemmd_submit(first, &product.product, &product.ticket));
    expect_ok(session, gemmd_dispatch(session, 10000));
    assert_int_equal(kill(atomic_load(&manager->gemmd), SIGKILL), 0);
    manager_await(manager, starts + 1);
    expect_ok(session, gemmd_ping(session, NULL));
    status = gemmd_wait(session, product.ticket, 0, NULL);
  }
  assert_int_equal(status, GEMMD_TIMEOUT);
  assert_non_null(strstr(gemmd_error(session), "(weight \"int8\")"));
  product_free(&product, session);
  gemmd_disconnect(session);
  manager_stop(manager);
  unmake();
}

/* A fork holds what the session had with the daemon before: an event loop has nothing to do for that. */
static void an_event_loop_rests_beside_a_fork(void **state) {
  enum { LOOKS = 100 };
  int status, looks = 0;
  make();
  daemon_start(&daemon_under_test);
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  struct pollfd readable = {.fd = gemmd_fd(session), .events = POLLIN};
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;)
      pause();
  }
  daemon_upgrade(&daemon_under_test);
  do
    expect_ok(session, gemmd_dispatch(session, 0));
  while (poll(&readable, 1, 0) == 1 && ++looks < LOOKS);
  assert_true(looks < LOOKS);
  expect_ok(session, gemmd_ping(session, NULL));
  assert_int_equal(kill(child, SIGKILL), 0);
  assert_int_equal(waitpid(child, &status, 0), child);
  gemmd_disconnect(session);
  daemon_stop(&daemon_under_test);
  unmake();
}

/* The options name another socket by now, which may be another gemmd's. */
static void an_upgrade_keeps_its_socket(void **state) {
  make();
  daemon_start(&daemon_under_test);
  const char *elsewhere = daemon_path(&daemon_under_test, "elsewhere");
  FILE *others = fopen(elsewhere, "w"), *options = fopen(daemon_path(&daemon_under_test, "gemmd.conf"), "a");
  assert_true(others != NULL && options != NULL && fprintf(options, "socket = %s\n", elsewhere) > 0);
  fclose(others);
  fclose(options);
  daemon_upgrade(&daemon_under_test);
  load_all();
  expect_weights();
  assert_int_equal(daemon_log_count(&daemon_under_test, "the socket stays at"), 1);
  daemon_stop(&daemon_under_test);
  assert_int_equal(access(daemon_under_test.socket, F_OK), -1);
  assert_int_equal(access(daemon_path(&daemon_under_test, "elsewhere"), F_OK), 0);
  unmake();
}

struct loading {
  gemmd_session *session;
  gemmd_weight *weight;
  struct product product;
  int status;
};

static void lose_the_daemon(void *user, uint64_t done, uint64_t total) {
  struct loading *loading = user;
  if (daemon_under_test.pid != 0)
    daemon_kill(&daemon_under_test);
  loading->status = gemmd_submit(loading->weight, &loading->product.product, &loading->product.ticket);
  if (loading->status == GEMMD_OK)
    loading->status = gemmd_wait(loading->session, loading->product.ticket, -1, NULL);
}

/* Who waits for a product in the progress of a load hears of the end, too. */
static void a_daemon_that_is_lost_during_a_load(void **state) {
  struct product_request request = {.weight = &weights[0], .m = 3, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 2};
  struct loading loading = {.status = GEMMD_OK};
  make();
  daemon_start(&daemon_under_test);
  load_all();
  write_model();
  loading.session = daemon_join(&daemon_under_test, &(gemmd_options){.reconnect_ms = UINT_MAX});
  expect_ok(loading.session, gemmd_weight_open(loading.session, names[0], &loading.weight));
  assert_true(product_make(&loading.product, loading.session, &request));
  const gemmd_load load = {.name = "again",
                           .tensor = names[1],
                           .format = (enum gemmd_format)shapes[1].format,
                           .device = -1,
                           .progress = lose_the_daemon,
                           .user = &loading};
  (void)gemmd_weight_load_file(loading.session, daemon_path(&daemon_under_test, "model.safetensors"), &load, NULL);
  assert_int_equal(loading.status, GEMMD_DISCONNECTED);
  assert_int_equal(gemmd_ping(loading.session, NULL), GEMMD_DISCONNECTED);
  product_free(&loading.product, loading.session);
  gemmd_disconnect(loading.session);
  unmake();
}

static void a_daemon_that_stays_away(void **state) {
  make();
  daemon_start(&daemon_under_test);
  gemmd_session *session = daemon_join(&daemon_under_test, &(gemmd_options){.reconnect_ms = 1});
  daemon_kill(&daemon_under_test);
  assert_int_equal(gemmd_ping(session, NULL), GEMMD_DISCONNECTED);
  gemmd_disconnect(session);
  unmake();
}

/* It does not see that its socket has ended: the kernel ends it, or it would keep its device for good. */
static void a_worker_that_stands_still_goes_with_gemmd(void **state) {
  make();
  daemon_start(&daemon_under_test);
  gemmd_session *session = daemon_join(&daemon_under_test, &(gemmd_options){.reconnect_ms = UINT_MAX});
  hold_process((pid_t)device_info(session).pid);
  daemon_kill(&daemon_under_test);
  gemmd_disconnect(session);
  unmake();
}

/* As a process that gemmd had forked right before it was killed: what it inherited it has until it executes. */
static pid_t hold_the_lock(unsigned ms) {
  int locked[2];
  char byte;
  assert_int_equal(pipe(locked), 0);
  pid_t child = fork();
  if (child == 0) {
    char path[sizeof daemon_under_test.socket + sizeof ".lock"];
    snprintf(path, sizeof path, "%s.lock", daemon_under_test.socket);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0 || write(locked[1], "", 1) != 1)
      _exit(1);
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL);
    _exit(0);
  }
  close(locked[1]);
  assert_int_equal(read(locked[0], &byte, 1), 1);
  close(locked[0]);
  return child;
}

static void a_lock_that_a_forked_process_still_has(void **state) {
  int status;
  make();
  pid_t child = hold_the_lock(300);
  daemon_start(&daemon_under_test);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  daemon_stop(&daemon_under_test);
  unmake();
}

/* As when gemmd was started by somebody whose own manager is not there any more. */
static void a_manager_that_is_gone_is_named_once(void **state) {
  make();
  daemon_start(&daemon_under_test);
  load_all();
  assert_int_equal(daemon_log_count(&daemon_under_test, "the service manager cannot be told"), 1);
  daemon_stop(&daemon_under_test);
  unmake();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(killed_with_descriptors_parked),
      cmocka_unit_test(upgraded_under_a_manager),
      cmocka_unit_test(upgraded_without_a_manager),
      cmocka_unit_test(an_error_from_before_names_its_weight),
      cmocka_unit_test(an_event_loop_rests_beside_a_fork),
      cmocka_unit_test(an_upgrade_keeps_its_socket),
      cmocka_unit_test(a_daemon_that_is_lost_during_a_load),
      cmocka_unit_test(a_daemon_that_stays_away),
      cmocka_unit_test(a_lock_that_a_forked_process_still_has),
      cmocka_unit_test(a_manager_that_is_gone_is_named_once),
      cmocka_unit_test(a_worker_that_stands_still_goes_with_gemmd),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
