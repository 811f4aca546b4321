/* The worker is killed again and again, or hangs, while several processes compute: they see right products and a pause,
 * and the weights are not read again (their file is gone). */
#include "client/gemmclient.h"
#include "proto/clock.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/product.h"
#include "tests/support/daemon/status.h"
#include "tests/support/reference/checkpoint.h"
#include "tests/support/reference/oracle.h"
#include "tests/support/system/hold.h"
#include "tests/support/system/nap.h"

#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static const struct gemm_weight shapes[] = {
    {300, 512, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0},
    {256, 384, GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK, 0, 0},
    {200, 512, GEMM_FORMAT_INT2, GEMM_SCALE_GROUP, 0, 0},
    {150, 500, GEMM_FORMAT_F16, GEMM_SCALE_NONE, 0, 0},
};
enum {
  WEIGHTS = COUNT(shapes),
  CLIENTS = 4,
  KILLS = 8,
  IN_FLIGHT = 8,               /* of the clients that do not wait for each product */
  PROGRESS = 2 * IN_FLIGHT + 1 /* products after which none is left that a kill has hit before */
};

static struct daemon daemon_under_test;
static struct oracle_weight weights[WEIGHTS];

/* What all processes see. */
struct scene {
  _Atomic bool stop;
  _Atomic uint64_t done[CLIENTS]; /* right products */
  _Atomic uint64_t pause_ns;      /* the longest wait for one */
};

static const char *weight_name(int index) {
  static const char *const names[WEIGHTS] = {"int8", "fp8", "int2", "f16"};
  return names[index];
}

static const char *model_path(void) {
  return daemon_path(&daemon_under_test, "model.safetensors");
}

static void prepare(const char *options) {
  static struct checkpoint checkpoint;
  daemon_make(&daemon_under_test, options);
  for (int i = 0; i < WEIGHTS; i++) {
    oracle_weight_make(&weights[i], &shapes[i], (uint64_t)i + 1);
    checkpoint_add_weight(&checkpoint, weight_name(i), &weights[i]);
  }
  checkpoint_write(&checkpoint, model_path());
}

/* Loads the weights and deletes their file. */
static void load_all(void) {
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  for (int i = 0; i < WEIGHTS; i++) {
    gemmd_load request = {
        .name = weight_name(i), .tensor = weight_name(i), .format = (enum gemmd_format)shapes[i].format, .device = -1};
    expect_ok(session, gemmd_weight_load_file(session, model_path(), &request, NULL));
  }
  gemmd_disconnect(session);
  assert_int_equal(unlink(model_path()), 0);
}

static void begin(const char *options) {
  prepare(options);
  daemon_start(&daemon_under_test);
  load_all();
}

static void end(void) {
  daemon_end(&daemon_under_test);
  for (int i = 0; i < WEIGHTS; i++)
    oracle_weight_free(&weights[i]);
}

/* ---- the worker */

/* Kills the worker, and returns when its successor is counted and has another process id. */
static void kill_worker(gemmd_session *session) {
  gemmd_device_info before = device_info(session), after;
  assert_true(before.pid > 1);
  assert_int_equal(kill((pid_t)before.pid, SIGKILL), 0);
  do {
    nap_shortly();
    after = device_info(session);
  } while (after.restarts == before.restarts && strcmp(after.state, "failed") != 0);
}

static void await_state(gemmd_session *session, const char *state) {
  gemmd_device_info info;
  do {
    nap_longer();
    info = device_info(session);
  } while (strcmp(info.state, state) != 0);
}

/* ---- clients */

static void note_pause(struct scene *scene, uint64_t ns) {
  uint64_t longest = atomic_load(&scene->pause_ns);
  while (ns > longest && !atomic_compare_exchange_weak(&scene->pause_ns, &longest, ns))
    ;
}

static bool make_products(gemmd_session *session, struct product *products, int index) {
  static const enum gemm_type y_types[] = {GEMM_F32, GEMM_F16};
  for (int i = 0; i < IN_FLIGHT; i++) {
    struct product_request request = {.weight = &weights[i % WEIGHTS],
                                      .m = 1 + (i * 7 + index) % 23,
                                      .x_type = GEMM_F16,
                                      .y_type = y_types[i / WEIGHTS % 2],
                                      .seed = (uint64_t)(index * 100 + i)};
    if (!product_make(&products[i], session, &request))
      return false;
  }
  return true;
}

/* So that a product which nobody computed again shows. */
static void forget_y(struct product *product) {
  memset(product->product.y, 0xfd,
         (size_t)(product->request.m * product->request.weight->shape.n) * gemm_type_bytes(product->request.y_type));
}

/* Computes `count` products from `first` on, which are in flight at the same time. */
static bool compute(gemmd_session *session, gemmd_weight **handles, struct product *products, int first, int count,
                    struct scene *scene, int index) {
  uint64_t begin_ns = clock_ns();
  for (int i = first; i < first + count; i++) {
    forget_y(&products[i]);
    if (gemmd_submit(handles[i % WEIGHTS], &products[i].product, &products[i].ticket) != GEMMD_OK)
      return false;
  }
  for (int i = first; i < first + count; i++) {
    if (gemmd_wait(session, products[i].ticket, -1, NULL) != GEMMD_OK || !product_right(&products[i]))
      return false;
    atomic_fetch_add(&scene->done[index], 1);
  }
  note_pause(scene, clock_ns() - begin_ns);
  return true;
}

/* Even ones wait for each product, odd ones have many in flight; the last two never spin. */
static int client(int index, void *user) {
  struct scene *scene = user;
  const gemmd_options options = {.spin_us = index < 2 ? 0 : UINT_MAX};
  gemmd_session *session = daemon_join(&daemon_under_test, &options);
  gemmd_weight *handles[WEIGHTS];
  struct product products[IN_FLIGHT];
  bool good = true;
  for (int i = 0; good && i < WEIGHTS; i++)
    good = gemmd_weight_open(session, weight_name(i), &handles[i]) == GEMMD_OK;
  good = good && make_products(session, products, index);
  while (good && !atomic_load(&scene->stop)) {
    if (index % 2 == 1)
      good = compute(session, handles, products, 0, IN_FLIGHT, scene, index);
    else
      for (int i = 0; good && i < IN_FLIGHT; i++)
        good = compute(session, handles, products, i, 1, scene, index);
  }
  if (!good)
    fprintf(stderr, "client %d: %s\n", index, gemmd_error(session));
  else
    for (int i = 0; i < IN_FLIGHT; i++)
      product_free(&products[i], session);
  gemmd_disconnect(session);
  return good ? 0 : 1;
}

/* Until every client has finished so many more products; fails where one has ended instead. */
static void await_progress(gemmd_session *session, struct scene *scene, const struct clients *clients) {
  uint64_t from[CLIENTS];
  for (int i = 0; i < CLIENTS; i++)
    from[i] = atomic_load(&scene->done[i]);
  for (int i = 0; i < CLIENTS; i++)
    while (atomic_load(&scene->done[i]) < from[i] + PROGRESS) {
      siginfo_t ended = {.si_pid = 0};
      assert_int_equal(waitid(P_PID, (id_t)clients->pids[i], &ended, WEXITED | WNOHANG | WNOWAIT), 0);
      assert_int_equal(ended.si_pid, 0);
      expect_ok(session, gemmd_ping(session, NULL));
    }
}

static void killed_under_load(void **state) {
  begin("");
  struct scene *scene = clients_share(sizeof *scene);
  struct clients clients;
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  clients_start(&clients, CLIENTS, client, scene);
  for (int i = 0; i < KILLS; i++) {
    await_progress(session, scene, &clients);
    kill_worker(session);
  }
  await_progress(session, scene, &clients);
  atomic_store(&scene->stop, true);
  clients_wait(&clients);
  gemmd_device_info info = device_info(session);
  assert_int_equal(info.restarts, KILLS);
  assert_string_equal(info.state, "ready");
  print_message("longest wait for a product with %d kills: %.1f ms\n", KILLS,
                (double)atomic_load(&scene->pause_ns) / 1e6);
  gemmd_disconnect(session);
  end();
}

/* Nothing is in flight when the worker dies: sessions from before and new ones find the same weights. */
static void killed_while_idle(void **state) {
  begin("");
  gemmd_session *old = daemon_join(&daemon_under_test, NULL);
  gemmd_weight *handle;
  struct product_request request = {.weight = &weights[0], .m = 5, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 3};
  expect_ok(old, gemmd_weight_open(old, weight_name(0), &handle));
  for (int i = 0; i < 3; i++) {
    gemmd_weight *other;
    kill_worker(old);
    gemmd_session *new = daemon_join(&daemon_under_test, NULL);
    expect_ok(new, gemmd_weight_open(new, weight_name(0), &other));
    assert_true(product_run(new, other, &request));
    assert_true(product_run(old, handle, &request));
    gemmd_disconnect(new);
  }
  gemmd_disconnect(old);
  end();
}

/* It does not die, it hangs: gemmd ends it, and the product that was in flight is computed by the successor. */
static void hung_with_a_product_in_flight(void **state) {
  begin("worker_timeout_s = 1\n");
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  gemmd_weight *handle;
  struct product_request request = {.weight = &weights[0], .m = 5, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 3};
  expect_ok(session, gemmd_weight_open(session, weight_name(0), &handle));
  assert_true(product_run(session, handle, &request));
  gemmd_device_info before = device_info(session);
  hold_process((pid_t)before.pid);
  assert_true(product_run(session, handle, &request));
  gemmd_device_info after = device_info(session);
  assert_int_equal(after.restarts, 1);
  assert_int_not_equal(after.pid, before.pid);
  assert_int_equal(daemon_log_count(&daemon_under_test, "it has not answered for 1 s"), 1);
  gemmd_disconnect(session);
  end();
}

/* Long products, so that with several clients there is nearly always one under way. */
static int keep_busy(int index, void *user) {
  struct scene *scene = user;
  struct product product;
  struct product_request request = {
      .weight = &weights[0], .m = 2048, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = (uint64_t)index};
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  gemmd_weight *weight;
  if (gemmd_weight_open(session, weight_name(0), &weight) != GEMMD_OK || !product_make(&product, session, &request))
    return 1;
  do
    if (gemmd_matmul(weight, &product.product) != GEMMD_OK)
      return 2;
  while (!atomic_load(&scene->stop)); /* which a client that starts late may find set */
  bool right = product_right(&product);
  product_free(&product, session);
  gemmd_disconnect(session);
  return right ? 0 : 3;
}

/* The device hangs: the worker's control thread answers as ever, and its engine gets nowhere. */
static void hung_device(void **state) {
  begin("worker_timeout_s = 10\ndevice_timeout_s = 3\n");
  _Atomic bool *held = clients_share(sizeof *held);
  struct scene *scene = clients_share(sizeof *scene);
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  gemmd_weight *handle;
  struct product_request request = {.weight = &weights[0], .m = 5, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 3};
  expect_ok(session, gemmd_weight_open(session, weight_name(0), &handle));
  struct clients busy;
  clients_start(&busy, 3, keep_busy, scene);
  while (device_info(session).requests < 20)
    nap_shortly();
  gemmd_device_info before = device_info(session);
  pid_t engine = hold_find((pid_t)before.pid, "engine"), holder = hold_thread(engine, held);
  assert_true(engine > 0);
  while (!atomic_load(held))
    assert_int_equal(waitpid(holder, NULL, WNOHANG), 0);
  assert_true(product_run(session, handle, &request));
  gemmd_device_info after = device_info(session);
  assert_int_equal(after.restarts, 1);
  assert_int_not_equal(after.pid, before.pid);
  assert_int_equal(daemon_log_count(&daemon_under_test, "its device has got nowhere for"), 1);
  assert_int_equal(daemon_log_count(&daemon_under_test, "it has not answered"), 0);
  atomic_store(&scene->stop, true);
  clients_wait(&busy);
  assert_int_equal(waitpid(holder, NULL, 0), holder);
  gemmd_disconnect(session);
  end();
}

/* The same without anything to do: the next request would wait for ever. One watch is no part of the other. */
static void hung_while_asleep(void **state) {
  begin("worker_timeout_s = 0\ndevice_timeout_s = 1\n");
  _Atomic bool *held = clients_share(sizeof *held);
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  gemmd_weight *handle;
  struct product_request request = {.weight = &weights[0], .m = 5, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 3};
  expect_ok(session, gemmd_weight_open(session, weight_name(0), &handle));
  gemmd_device_info before = device_info(session), after;
  pid_t engine = hold_find((pid_t)before.pid, "engine"), holder = hold_thread(engine, held);
  assert_true(engine > 0);
  while (!atomic_load(held))
    assert_int_equal(waitpid(holder, NULL, WNOHANG), 0);
  do {
    nap_shortly();
    after = device_info(session);
  } while (after.restarts == 0);
  assert_true(product_run(session, handle, &request));
  assert_int_equal(daemon_log_count(&daemon_under_test, "its device has got nowhere for"), 1);
  assert_int_equal(waitpid(holder, NULL, 0), holder);
  gemmd_disconnect(session);
  end();
}

/* Weights can be loaded, shared and dropped after a death: the catalog and the slabs still agree. */
static void the_catalog_goes_on(void **state) {
  begin("");
  const char *path = daemon_path(&daemon_under_test, "again.safetensors");
  checkpoint_write_one(path, "t", &weights[1]);
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  kill_worker(session);
  await_state(session, "ready");
  gemmd_load request = {.name = "again", .tensor = "t", .format = GEMMD_FORMAT_FP8, .device = -1};
  gemmd_weight_info info;
  uint64_t freed = 0;
  expect_ok(session, gemmd_weight_load_file(session, path, &request, &info));
  assert_true(info.shared);
  expect_ok(session, gemmd_weight_unload(session, "again", &freed));
  assert_true(freed == 0);
  expect_ok(session, gemmd_weight_unload(session, weight_name(1), &freed));
  assert_true(freed == info.bytes);
  expect_ok(session, gemmd_weight_load_file(session, path, &request, &info));
  assert_false(info.shared);
  kill_worker(session);
  gemmd_weight *handle;
  struct product_request product = {.weight = &weights[1], .m = 9, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 3};
  expect_ok(session, gemmd_weight_open(session, "again", &handle));
  assert_true(product_run(session, handle, &product));
  gemmd_disconnect(session);
  end();
}

/* The device has failed: products end with DEVICE_LOST, the rest goes on, and status says why. */
static void expect_failed(gemmd_session *session, gemmd_weight *handle) {
  struct product product;
  struct product_request request = {.weight = &weights[0], .m = 5, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 3};
  gemmd_device_health trouble;
  uint64_t total = device_info(session).memory_used;
  await_state(session, "failed");
  assert_true(product_make(&product, session, &request));
  assert_int_equal(gemmd_matmul(handle, &product.product), GEMMD_DEVICE_LOST);
  assert_true(gemmd_status_retryable(GEMMD_DEVICE_LOST));
  product_free(&product, session);
  expect_ok(session, gemmd_ping(session, NULL));
  expect_ok(session, gemmd_device_state(session, 0, &trouble));
  assert_string_equal(trouble.state, "failed");
  assert_non_null(strstr(trouble.why, "was ended by signal 9"));
  assert_true(trouble.down_ms > 0 && trouble.retry_ms > 0);
  assert_int_equal(device_info(session).memory_used, total); /* its weights stay */
}

/* A worker that dies too often is started again after a pause, or when an admin says so: what needs it ends with
 * DEVICE_LOST until then, and the session serves again. */
static void killed_too_often(void **state) {
  begin("worker_restarts_max = 2\nworker_pause_s = 86400\n");
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  gemmd_weight *handle;
  struct product_request request = {.weight = &weights[0], .m = 5, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 3};
  uint32_t tried;
  expect_ok(session, gemmd_weight_open(session, weight_name(0), &handle));
  expect_ok(session, gemmd_device_retry(session, -1, &tried));
  assert_int_equal(tried, 0);
  assert_int_equal(gemmd_device_retry(session, 1, &tried), GEMMD_INVALID);
  for (int i = 0; i < 2; i++) {
    assert_true(product_run(session, handle, &request));
    kill_worker(session);
    await_state(session, "ready");
  }
  kill_worker(session);
  expect_failed(session, handle);
  assert_int_equal(device_info(session).restarts, 2);
  gemmd_session *later = daemon_join(&daemon_under_test, NULL); /* it comes while there is no worker */
  gemmd_weight *late;
  expect_ok(later, gemmd_weight_open(later, weight_name(1), &late));
  expect_ok(session, gemmd_device_retry(session, 0, &tried));
  assert_int_equal(tried, 1);
  await_state(session, "ready");
  assert_int_equal(device_info(session).restarts, 3);
  assert_true(product_run(session, handle, &request));
  struct product_request other = {.weight = &weights[1], .m = 9, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 3};
  assert_true(product_run(later, late, &other));
  gemmd_disconnect(later);
  gemmd_disconnect(session);
  end();
}

/* Eight times within a minute, and no word from anybody: it comes again by itself, for the same session. */
static void killed_eight_times(void **state) {
  struct product_request request = {.weight = &weights[0], .m = 5, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 3};
  gemmd_device_health trouble;
  gemmd_weight *handle;
  begin("worker_restarts_max = 5\nworker_pause_s = 8\n");
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  expect_ok(session, gemmd_weight_open(session, weight_name(0), &handle));
  for (uint32_t kills = 1; kills <= 8; kills++) {
    assert_int_equal(kill((pid_t)device_info(session).pid, SIGKILL), 0);
    while (device_info(session).restarts < kills)
      nap_shortly();
    await_state(session, "ready");
    assert_true(product_run(session, handle, &request));
  }
  assert_int_equal(daemon_log_count(&daemon_under_test, "its device has failed"), 3);
  expect_ok(session, gemmd_device_state(session, 0, &trouble));
  assert_true(trouble.down_ms == 0 && trouble.retry_ms == 0);
  gemmd_disconnect(session);
  end();
}

/* The rings say that the device has failed, and nobody is left to say otherwise: the session finds the next gemmd. */
static void failed_and_then_replaced(void **state) {
  struct product_request request = {.weight = &weights[0], .m = 5, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 3};
  gemmd_weight *handle;
  begin("worker_restarts_max = 0\nworker_pause_s = 86400\n");
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  expect_ok(session, gemmd_weight_open(session, weight_name(0), &handle));
  kill_worker(session);
  expect_failed(session, handle);
  daemon_upgrade(&daemon_under_test);
  assert_true(product_run(session, handle, &request));
  gemmd_disconnect(session);
  end();
}

/* Another build stands where the program was: what is started from then on is of the build that runs. */
static void a_program_that_was_replaced_on_disk(void **state) {
  const char *build = getenv("GEMMD_BUILD");
  char before[512], copy[1100];
  prepare("");
  const char *program = daemon_path(&daemon_under_test, "gemmd");
  snprintf(before, sizeof before, "%s", build != NULL ? build : "build");
  snprintf(copy, sizeof copy, "cp %s/gemmd %s", before, program);
  assert_int_equal(system(copy), 0);
  assert_int_equal(setenv("GEMMD_BUILD", daemon_under_test.folder, 1), 0);
  daemon_start(&daemon_under_test);
  assert_int_equal(setenv("GEMMD_BUILD", before, 1), 0);
  assert_int_equal(unlink(program), 0);
  assert_int_equal(symlink("/bin/false", program), 0);
  load_all();
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  kill_worker(session);
  await_state(session, "ready");
  gemmd_weight *handle;
  struct product_request product = {.weight = &weights[1], .m = 9, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 3};
  expect_ok(session, gemmd_weight_open(session, weight_name(1), &handle));
  assert_true(product_run(session, handle, &product));
  gemmd_disconnect(session);
  end();
}

static int kernels_choice(pid_t pid) {
  char path[64];
  int value = INT_MIN;
  snprintf(path, sizeof path, "/proc/%d/oom_score_adj", (int)pid);
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  assert_int_equal(fscanf(file, "%d", &value), 1);
  fclose(file);
  return value;
}

/* Where memory ends the kernel takes a worker, each that follows too, before gemmd, which is as it was. */
static void gemmd_is_not_the_first_to_go(void **state) {
  int own = kernels_choice(getpid()), above = own + 500 < 1000 ? own + 500 : 1000;
  daemon_make(&daemon_under_test, "");
  daemon_start(&daemon_under_test);
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  for (int life = 0; life < 2; life++) {
    assert_int_equal(kernels_choice(daemon_under_test.pid), own);
    assert_int_equal(kernels_choice((pid_t)device_info(session).pid), above);
    device_kill_worker(session);
  }
  gemmd_disconnect(session);
  daemon_stop(&daemon_under_test);
  daemon_remove(&daemon_under_test);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(killed_under_load),
      cmocka_unit_test(killed_while_idle),
      cmocka_unit_test(hung_with_a_product_in_flight),
      cmocka_unit_test(hung_device),
      cmocka_unit_test(hung_while_asleep),
      cmocka_unit_test(the_catalog_goes_on),
      cmocka_unit_test(killed_too_often),
      cmocka_unit_test(killed_eight_times),
      cmocka_unit_test(failed_and_then_replaced),
      cmocka_unit_test(a_program_that_was_replaced_on_disk),
      cmocka_unit_test(gemmd_is_not_the_first_to_go),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
