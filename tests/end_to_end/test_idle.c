/* A worker that nobody asks for anything sleeps: weights and borrowers stay, and what is asked for starts it again.
 * What direct clients compute is tuned, and what they have borrowed is compared with what was loaded, when they leave
 * the device alone. */
#include "client/gemmclient.h"
#include "proto/shm/published.h"
#include "proto/shm/seen.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/product.h"
#include "tests/support/daemon/shell.h"
#include "tests/support/daemon/status.h"
#include "tests/support/reference/checkpoint.h"
#include "tests/support/reference/oracle.h"
#include "tests/support/system/folder.h"
#include "tests/support/system/nap.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define SLEEPY "worker_idle_s = 1\ncpu_library_bytes = 0\n"
#define SHAPE "int8-row-200x512-f16-f32-none-m8"

static const struct gemm_weight shape = {200, 512, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0};
static struct oracle_weight weight;
static struct daemon daemon_under_test;
static struct error failure;

static gemmd_session *begin(const char *options) {
  daemon_make(&daemon_under_test, options);
  oracle_weight_make(&weight, &shape, 1);
  checkpoint_write_one(daemon_path(&daemon_under_test, "model.safetensors"), "w", &weight);
  daemon_start(&daemon_under_test);
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  daemon_load(session, &daemon_under_test, "w", GEMMD_FORMAT_INT8);
  return session;
}

static void end(gemmd_session *session) {
  gemmd_disconnect(session);
  daemon_end(&daemon_under_test);
  oracle_weight_free(&weight);
}

static gemmd_device_rest rest_of(gemmd_session *session) {
  gemmd_device_rest rest;
  expect_ok(session, gemmd_device_resting(session, 0, &rest));
  return rest;
}

/* These end by the test's limit. */
static void await_state(gemmd_session *session, const char *state) {
  while (strcmp(device_info(session).state, state) != 0)
    nap_longer();
}

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- what a direct client has */

struct engine {
  gemmd_session *session;
  gemmd_borrowed *borrowed;
  gemmd_borrowed_part part;
  const uint8_t *base;
  uint8_t *copy; /* of the weight, as it was mapped */
  uint8_t *ring;
  struct published table;
  uint64_t table_bytes;
};

static struct engine open_engine(void) {
  struct engine engine = {.session = daemon_join(&daemon_under_test, NULL)};
  uint64_t bytes;
  unsigned count;
  int fd;
  expect_ok(engine.session, gemmd_weight_borrow(engine.session, "w", &engine.borrowed));
  engine.part = gemmd_borrowed_parts(engine.borrowed, &count)[0];
  engine.base = mmap(NULL, engine.part.slab_bytes, PROT_READ, MAP_SHARED, engine.part.fd, 0);
  assert_ptr_not_equal(engine.base, MAP_FAILED);
  engine.copy = malloc(engine.part.bytes);
  assert_non_null(engine.copy);
  memcpy(engine.copy, engine.base + engine.part.offset, engine.part.bytes);
  expect_ok(engine.session, gemmd_shapes_open(engine.session, &fd, &bytes));
  engine.ring = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  assert_ptr_not_equal(engine.ring, MAP_FAILED);
  close(fd);
  expect_ok(engine.session, gemmd_tunings_open(engine.session, 0, &fd, &engine.table_bytes));
  void *table = mmap(NULL, engine.table_bytes, PROT_READ, MAP_SHARED, fd, 0);
  assert_ptr_not_equal(table, MAP_FAILED);
  close(fd);
  assert_int_equal(published_open(&engine.table, table, engine.table_bytes, &failure), STATUS_OK);
  return engine;
}

static void expect_same(const struct engine *engine) {
  assert_memory_equal(engine->base + engine->part.offset, engine->copy, engine->part.bytes);
}

static void close_engine(struct engine *engine) {
  munmap((void *)(uintptr_t)engine->base, engine->part.slab_bytes);
  munmap((void *)(uintptr_t)engine->table.memory, engine->table_bytes);
  munmap(engine->ring, SEEN_BYTES);
  free(engine->copy);
  gemmd_disconnect(engine->session);
}

/* Computes so many rows for the first time. */
static void see_rows(const struct engine *engine, uint32_t m) {
  const struct seen_entry seen = {
      .borrow = gemmd_borrowed_number(engine->borrowed), .m = m, .x_type = GEMM_F16, .y_type = GEMM_F32};
  assert_true(seen_put(engine->ring, &seen));
}

/* A shape of eight. */
static void see(const struct engine *engine) {
  see_rows(engine, 7);
}

static bool is_published(const struct engine *engine, struct published_row *row) {
  return published_find(&engine->table, SHAPE, row);
}

static void expect_product(gemmd_session *session) {
  const struct product_request request = {.weight = &weight, .m = 5, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 3};
  gemmd_weight *handle;
  expect_ok(session, gemmd_weight_open(session, "w", &handle));
  assert_true(product_run(session, handle, &request));
  gemmd_weight_close(handle);
}

/* ---- sleep */

static void an_idle_worker_goes_and_comes_back(void **state) {
  if (daemon_on_cuda())
    skip();
  gemmd_session *session = begin(SLEEPY);
  struct engine engine = open_engine();
  gemmd_device_info awake = device_info(session);
  assert_string_equal(awake.state, "ready");
  assert_true(awake.pid > 0 && awake.memory_own > 0);
  await_state(session, "asleep");
  gemmd_device_info asleep = device_info(session);
  assert_int_equal(asleep.pid, 0);
  assert_int_equal(asleep.memory_own, 0);
  assert_int_equal(asleep.memory_slabs, awake.memory_slabs); /* the weights stay */
  assert_int_equal(asleep.memory_used, awake.memory_used);
  assert_int_equal(rest_of(session).naps, 1);
  assert_int_equal(kill((pid_t)awake.pid, 0), -1);
  expect_same(&engine);
  shell_begin(&daemon_under_test);
  shell_expect("$T/gemmctl metrics | grep -q '^gemmd_device_asleep{.*} 1$'", 0);
  shell_expect("$T/gemmctl metrics | grep -q '^gemmd_device_ready{.*} 1$'", 0); /* nobody need be alarmed */
  shell_expect("$T/gemmctl metrics | grep -q '^gemmd_device_own_bytes{.*} 0$'", 0);
  gemmd_session *other = daemon_join(&daemon_under_test, NULL); /* with an arena: that alone wakes nobody */
  expect_ok(other, gemmd_ping(other, NULL));
  assert_string_equal(device_info(other).state, "asleep");
  expect_product(other);
  expect_same(&engine);
  gemmd_device_info again = device_info(session);
  assert_string_equal(again.state, "ready");
  assert_int_equal(again.restarts, 0);
  gemmd_disconnect(other);
  await_state(session, "asleep");
  assert_int_equal(rest_of(session).naps, 2);
  close_engine(&engine);
  end(session);
}

/* Nothing but the doorbell tells of it: no weight is opened. */
static void a_product_in_the_ring_starts_it(void **state) {
  enum { ROWS = 3, WIDTH = 16 };
  if (daemon_on_cuda())
    skip();
  gemmd_session *session = begin(SLEEPY);
  float *x = gemmd_alloc(session, ROWS * WIDTH * sizeof *x), *y = gemmd_alloc(session, ROWS * WIDTH * sizeof *y);
  uint16_t *w = gemmd_alloc(session, WIDTH * WIDTH * sizeof *w),
           *half = gemmd_alloc(session, ROWS * WIDTH * sizeof *half);
  assert_true(x != NULL && y != NULL && w != NULL && half != NULL);
  memset(w, 0, WIDTH * WIDTH * sizeof *w);
  for (int i = 0; i < WIDTH; i++)
    w[i * WIDTH + i] = 0x4000; /* 2.0 */
  for (int i = 0; i < ROWS * WIDTH; i++)
    half[i] = 0x3c00; /* 1.0 */
  const gemmd_tensor tensor = {.data = w, .n = WIDTH, .k = WIDTH};
  const gemmd_product product = {.m = ROWS, .x = half, .x_type = GEMMD_F16, .y = y, .y_type = GEMMD_F32};
  for (int nap = 1; nap <= 3; nap++) {
    await_state(session, "asleep");
    assert_int_equal(rest_of(session).naps, nap);
    memset(y, 0, ROWS * WIDTH * sizeof *y);
    expect_ok(session, gemmd_tensors_matmul(session, &tensor, &product));
    for (int i = 0; i < ROWS * WIDTH; i++)
      assert_true(y[i] == 2.0F);
  }
  assert_int_equal(device_info(session).restarts, 0);
  end(session);
}

struct sought {
  const char *shape;
  unsigned count;
};

static bool count_shape(void *user, const gemmd_tune_shape *row) {
  struct sought *sought = user;
  sought->count += strcmp(row->shape, sought->shape) == 0;
  return true;
}

static void what_is_asked_for_starts_it(void **state) {
  if (daemon_on_cuda())
    skip();
  static char state_dir[] = "/tmp/gemmd-idle-XXXXXX";
  assert_non_null(mkdtemp(state_dir));
  assert_int_equal(setenv("STATE_DIRECTORY", state_dir, 1), 0); /* where what was tuned is kept */
  gemmd_session *session = begin(SLEEPY);
  const gemmd_tune_request request = {.weight = "w", .m = 2, .x_type = GEMMD_F16, .y_type = GEMMD_F16};
  const gemmd_load load = {.name = "second", .tensor = "w", .format = GEMMD_FORMAT_INT8, .device = -1};
  gemmd_tune_report report;
  await_state(session, "asleep");
  expect_ok(session, gemmd_tune(session, &request, &report));
  await_state(session, "asleep");
  expect_ok(session, gemmd_tune_pin(session, "w", NULL, NULL));
  await_state(session, "asleep");
  expect_ok(session,
            gemmd_weight_load_file(session, daemon_path(&daemon_under_test, "model.safetensors"), &load, NULL));
  await_state(session, "asleep");
  unsigned naps = rest_of(session).naps;
  shell_begin(&daemon_under_test);
  shell_expect("$T/gemmctl metrics >/dev/null", 0); /* at every scrape: that wakes nobody */
  assert_string_equal(device_info(session).state, "asleep");
  assert_int_equal(rest_of(session).naps, naps);
  struct sought sought = {.shape = report.shape};
  expect_ok(session, gemmd_tune_list(session, 0, count_shape, &sought)); /* what was kept */
  assert_int_equal(sought.count, 1);
  await_state(session, "asleep");
  assert_int_equal(rest_of(session).naps, naps + 1);
  daemon_upgrade(&daemon_under_test); /* with nobody awake */
  expect_product(session);
  end(session);
  unsetenv("STATE_DIRECTORY");
  assert_true(folder_drop(state_dir));
}

static void who_has_a_weight_open_keeps_it_awake(void **state) {
  gemmd_weight *handle;
  if (daemon_on_cuda())
    skip();
  gemmd_session *session = begin(SLEEPY), *other = daemon_join(&daemon_under_test, NULL);
  expect_ok(session, gemmd_weight_open(session, "w", &handle));
  for (uint64_t begin_ns = now_ns(); now_ns() - begin_ns < 2500000000u;)
    assert_string_equal(device_info(other).state, "ready");
  gemmd_weight_close(handle);
  await_state(other, "asleep");
  gemmd_disconnect(other);
  end(session);
}

static unsigned children(void) {
  char path[64], text[256] = "";
  unsigned count = 0;
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)daemon_under_test.pid, (int)daemon_under_test.pid);
  FILE *file = fopen(path, "re");
  if (file != NULL && fgets(text, sizeof text, file) != NULL)
    for (const char *at = text; *at != '\0'; at++)
      count += *at == ' ';
  if (file != NULL)
    fclose(file);
  return count;
}

/* Nothing of gemmd is on the device then, a second process that stands by included. */
static void a_spare_worker_goes_as_well(void **state) {
  if (daemon_on_cuda())
    skip();
  gemmd_session *session = begin(SLEEPY "worker_spare = 1\n");
  while (children() != 2)
    nap_longer();
  await_state(session, "asleep");
  while (children() != 0)
    nap_longer();
  expect_product(session);
  while (children() != 2)
    nap_longer();
  assert_int_equal(device_info(session).restarts, 0);
  end(session);
}

/* ---- quiet */

/* The worker was started for work in the background after `since_ns`: it is not started again within a minute. */
static void expect_a_minute_between(gemmd_session *session, const struct engine *engine, uint64_t since_ns) {
  const uint64_t long_ns = 2000000000, minute_ns = 50000000000; /* some less than one, for a machine that is busy */
  see_rows(engine, 200);
  for (uint64_t begin_ns = now_ns(); now_ns() - begin_ns < long_ns && now_ns() - since_ns < minute_ns;)
    assert_string_equal(device_info(session).state, "asleep");
  if (now_ns() - since_ns >= minute_ns)
    return;
  assert_int_equal(rest_of(session).untuned, 1);
  assert_int_equal(rest_of(session).naps, 2);
}

static void shapes_are_tuned_when_nobody_computes(void **state) {
  struct published_row row;
  if (daemon_on_cuda())
    skip();
  gemmd_session *session = begin(SLEEPY "device_quiet_ms = 500\ntune_quiet_ms = 0\n");
  struct engine engine = open_engine();
  see(&engine);
  do /* longer than the worker waits for something to do, so that it is asleep by then */
    seen_computes(engine.ring, 0);
  while (strcmp(device_info(session).state, "asleep") != 0);
  for (int i = 0; i < 200; i++) {
    seen_computes(engine.ring, 0);
    assert_false(is_published(&engine, &row));
    assert_string_equal(rest_of(session).quiet, "in use by direct clients");
    assert_int_equal(rest_of(session).untuned, 1);
  }
  assert_string_equal(device_info(session).state, "asleep");
  uint64_t since_ns = now_ns();
  while (!is_published(&engine, &row)) /* from here on it is left alone */
    nap_longer();
  await_state(session, "asleep");
  assert_int_equal(rest_of(session).untuned, 0);
  assert_int_equal(rest_of(session).naps, 2);
  expect_a_minute_between(session, &engine, since_ns);
  assert_int_equal(device_info(session).restarts, 0);
  expect_same(&engine);
  close_engine(&engine);
  end(session);
}

static void engines_that_pause_are_taken_at_their_word(void **state) {
  struct published_row row;
  if (daemon_on_cuda())
    skip();
  gemmd_session *session = begin("device_quiet_ms = 3600000\ntune_quiet_ms = 0\n");
  struct engine engine = open_engine(), second = open_engine();
  see(&engine);
  seen_pause(engine.ring, 0, UINT64_MAX);
  while (strcmp(rest_of(session).quiet, "in use by direct clients") != 0)
    nap_longer();
  for (uint64_t begin_ns = now_ns(); now_ns() - begin_ns < 1000000000u;) {
    assert_string_equal(rest_of(session).quiet, "in use by direct clients"); /* the second one does not pause */
    assert_false(is_published(&engine, &row));
  }
  seen_pause(second.ring, 0, UINT64_MAX);
  while (!is_published(&engine, &row))
    nap_longer();
  assert_string_equal(rest_of(session).quiet, "its engines pause");
  seen_computes(second.ring, 0);
  while (strcmp(rest_of(session).quiet, "in use by direct clients") != 0)
    nap_longer();
  close_engine(&engine);
  close_engine(&second);
  end(session);
}

/* What a client has found is tried beside what the worker knows; who lends nothing has nothing to say. */
static void what_a_client_found_is_published_by_the_worker(void **state) {
  gemmd_proposal proposal = {.m = 7, .x_type = GEMMD_F16, .y_type = GEMMD_F32, .kernel = "cpu threads=1"};
  struct published_row row;
  if (daemon_on_cuda())
    skip();
  gemmd_session *session = begin(SLEEPY "device_quiet_ms = 300\ntune_quiet_ms = 0\n");
  struct engine engine = open_engine();
  await_state(session, "asleep");
  expect_ok(engine.session, gemmd_tune_propose(engine.session, engine.borrowed, &proposal));
  while (!is_published(&engine, &row))
    nap_longer();
  assert_int_not_equal(row.kind, PUBLISHED_NONE);
  proposal.kernel = "no\nkernel";
  assert_int_equal(gemmd_tune_propose(engine.session, engine.borrowed, &proposal), GEMMD_INVALID);
  proposal.kernel = "no such kernel";
  expect_ok(engine.session, gemmd_tune_propose(engine.session, engine.borrowed, &proposal));
  while (rest_of(session).untuned > 0)
    nap_longer();
  assert_int_equal(daemon_log_count(&daemon_under_test, "kernel no such kernel, which a client has found"), 1);
  assert_int_equal(device_info(session).restarts, 0);
  close_engine(&engine);
  end(session);
}

/* ---- verification */

/* By a descriptor that root alone can open for writing. */
static void plant(const struct engine *engine) {
  char path[64];
  const uint8_t byte = (uint8_t)~engine->copy[7];
  snprintf(path, sizeof path, "/proc/self/fd/%d", engine->part.fd);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  assert_true(fd >= 0);
  assert_int_equal(pwrite(fd, &byte, 1, (off_t)(engine->part.offset + 7)), 1);
  close(fd);
}

static void what_was_written_to_is_found(void **state) {
  gemmd_weight_info info;
  if (daemon_on_cuda() || geteuid() != 0)
    skip();
  gemmd_session *session = begin("device_quiet_ms = 100\nverify_s = 1\n");
  struct engine engine = open_engine();
  while (rest_of(session).verified < 2)
    nap_longer();
  expect_ok(session, gemmd_weight_stat(session, "w", &info)); /* it is sound */
  assert_int_equal(rest_of(session).damaged, 0);
  plant(&engine);
  while (gemmd_weight_stat(session, "w", &info) == GEMMD_OK)
    nap_longer();
  expect_ok(engine.session, gemmd_ping(engine.session, NULL));
  assert_int_equal(gemmd_borrowed_look(engine.borrowed), GEMMD_BORROWED_WITHDRAWN);
  assert_int_equal(rest_of(session).damaged, 1);
  assert_int_equal(daemon_log_count(&daemon_under_test, "was damaged while it was lent"), 1);
  shell_begin(&daemon_under_test);
  shell_expect("$T/gemmctl status | grep -q '^device 0: 1 lent weight found damaged and withdrawn$'", 0);
  shell_expect("$T/gemmctl metrics | grep -q '^gemmd_device_damaged_total{.*} 1$'", 0);
  daemon_load(session, &daemon_under_test, "w", GEMMD_FORMAT_INT8);
  expect_product(session);
  close_engine(&engine);
  end(session);
}

static void what_is_given_back_meanwhile_is_compared_as_well(void **state) {
  gemmd_weight_info info;
  if (daemon_on_cuda() || geteuid() != 0)
    skip();
  gemmd_session *session = begin(SLEEPY "device_quiet_ms = 100\nverify_s = 0\n");
  struct engine engine = open_engine();
  await_state(session, "asleep");
  plant(&engine);
  close_engine(&engine);
  while (gemmd_weight_stat(session, "w", &info) == GEMMD_OK)
    nap_longer();
  assert_int_equal(rest_of(session).damaged, 1);
  end(session);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_idle_worker_goes_and_comes_back),
      cmocka_unit_test(a_product_in_the_ring_starts_it),
      cmocka_unit_test(what_is_asked_for_starts_it),
      cmocka_unit_test(who_has_a_weight_open_keeps_it_awake),
      cmocka_unit_test(a_spare_worker_goes_as_well),
      cmocka_unit_test(shapes_are_tuned_when_nobody_computes),
      cmocka_unit_test(engines_that_pause_are_taken_at_their_word),
      cmocka_unit_test(what_a_client_found_is_published_by_the_worker),
      cmocka_unit_test(what_was_written_to_is_found),
      cmocka_unit_test(what_is_given_back_meanwhile_is_compared_as_well),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
