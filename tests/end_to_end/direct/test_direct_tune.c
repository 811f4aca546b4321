/* An engine that tunes in its own process, tells gemmd what it found, and says when it pauses. */
#include "client/gemmclient_direct.h"
#include "proto/shm/seen.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/engine.h"
#include "tests/support/daemon/layers.h"
#include "tests/support/system/nap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { ROWS_MOST = 40, LANES = 2, BUDGET_MS = 600 };

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- tuning */

static bool computes(const struct engine *engine, gemmd_direct_weight *weight, int layer, int64_t m,
                     enum gemm_type x_type, enum gemm_type y_type) {
  struct engine_product product;
  bool good = engine_product_make(engine, &product, weight, &layers.weights[layer], m, x_type, y_type, 5) &&
              engine_product_run(engine, &product) && engine_product_run(engine, &product);
  engine_product_free(engine, &product);
  return good;
}

/* The most rows lie within a bucket, and two of one bucket are tuned once. */
static int tune_one(const struct engine *engine, int layer, enum gemm_type x_type, enum gemm_type y_type) {
  static const int64_t rows[] = {1, 33, ROWS_MOST};
  gemmd_direct_weight *weight;
  unsigned found = 99;
  const gemmd_direct_tuning tuning = {.bytes = sizeof tuning,
                                      .rows = rows,
                                      .row_count = 3,
                                      .x_type = (enum gemmd_type)x_type,
                                      .y_type = (enum gemmd_type)y_type,
                                      .budget_ms = BUDGET_MS,
                                      .lane = 1};
  EXPECT(engine_report(gemmd_direct_borrow(engine->direct, layers_name(layer), &weight)));
  EXPECT(computes(engine, weight, layer, 33, x_type, y_type));
  uint64_t generation = gemmd_direct_generation(engine->direct);
  EXPECT(engine_report(gemmd_direct_tune(weight, &tuning, &found)));
  EXPECT(found <= 2);
  EXPECT(gemmd_direct_generation(engine->direct) >= generation + found);
  EXPECT(computes(engine, weight, layer, 1, x_type, y_type));
  EXPECT(computes(engine, weight, layer, 33, x_type, y_type));
  EXPECT(computes(engine, weight, layer, ROWS_MOST, x_type, y_type));
  EXPECT(engine_report(gemmd_direct_return(weight)));
  return 0;
}

static int tune_all(int index, void *user) {
  struct engine engine;
  EXPECT(engine_open(&engine, &layers.daemon, LANES, ROWS_MOST));
  for (int layer = 0; layer < layers.count; layer++) {
    enum gemm_format format = layers_shapes[layer].format;
    enum gemm_type x_type = gemm_takes_x(format, GEMM_F16) ? GEMM_F16 : GEMM_BF16;
    EXPECT(tune_one(&engine, layer, x_type, GEMM_F32) == 0);
  }
  EXPECT(tune_one(&engine, 2, GEMM_INT8, GEMM_S32) == 0);
  EXPECT(tune_one(&engine, 2, GEMM_INT8, GEMM_F16) == 0);
  engine_close(&engine);
  return 0;
}

static void test_tune(void **state) {
  clients_run(1, tune_all, NULL);
}

static bool refused(gemmd_direct_weight *weight, gemmd_direct_tuning tuning, int status, const char *text) {
  int got = gemmd_direct_tune(weight, &tuning, NULL);
  if (got == status && strstr(gemmd_direct_error(), text) != NULL)
    return true;
  fprintf(stderr, "got %d, %s\n", got, gemmd_direct_error());
  return false;
}

static int tune_wrongly(int index, void *user) {
  static const int64_t rows[] = {4, ROWS_MOST + 1, 0};
  struct engine engine;
  gemmd_direct_weight *weight;
  gemmd_direct_tuning good = {
      .bytes = sizeof good, .rows = rows, .row_count = 1, .x_type = GEMMD_F16, .y_type = GEMMD_F16, .budget_ms = 1};
  EXPECT(engine_open(&engine, &layers.daemon, LANES, ROWS_MOST));
  EXPECT(engine_report(gemmd_direct_borrow(engine.direct, layers_name(2), &weight)));
  EXPECT(engine_report(gemmd_direct_tune(weight, &good, NULL)));
  gemmd_direct_tuning bad = good;
  bad.bytes = 8;
  EXPECT(refused(weight, bad, GEMMD_INVALID, "bytes of the tuning"));
  bad = good;
  bad.row_count = 2;
  EXPECT(refused(weight, bad, GEMMD_INVALID, "M must be 1..40, got 41"));
  bad.rows = rows + 2;
  bad.row_count = 1;
  EXPECT(refused(weight, bad, GEMMD_INVALID, "M must be 1..40, got 0"));
  bad.row_count = 0;
  EXPECT(refused(weight, bad, GEMMD_INVALID, "at least one M"));
  bad = good;
  bad.lane = LANES;
  EXPECT(refused(weight, bad, GEMMD_INVALID, "lane must be 0..1, got 2"));
  bad = good;
  bad.x_type = GEMMD_E4M3;
  EXPECT(refused(weight, bad, GEMMD_UNSUPPORTED, "x type"));
  bad = good;
  bad.y_type = GEMMD_S32;
  EXPECT(refused(weight, bad, GEMMD_UNSUPPORTED, "y type"));
  engine_close(&engine);
  return 0;
}

static void test_refusals(void **state) {
  clients_run(1, tune_wrongly, NULL);
}

/* ---- what gemmd is told */

static int propose(int index, void *user) {
  gemmd_session *session = NULL;
  gemmd_borrowed *borrowed = NULL;
  gemmd_proposal proposal = {.m = 4, .x_type = GEMMD_F16, .y_type = GEMMD_F16, .kernel = "plain"};
  char longer[300];
  EXPECT(gemmd_connect(&session, layers.daemon.socket, NULL) == GEMMD_OK);
  EXPECT(gemmd_weight_borrow(session, layers_name(2), &borrowed) == GEMMD_OK);
  EXPECT(gemmd_tune_propose(session, borrowed, &proposal) == GEMMD_OK);
  memset(longer, 'a', sizeof longer - 1);
  longer[sizeof longer - 1] = '\0';
  proposal.kernel = longer;
  EXPECT(gemmd_tune_propose(session, borrowed, &proposal) == GEMMD_INVALID);
  gemmd_weight_return(borrowed);
  gemmd_disconnect(session);
  return 0;
}

static void test_propose(void **state) {
  clients_run(1, propose, NULL);
}

/* Looks at the page as gemmd does. */
static int pause_and_go_on(int index, void *user) {
  struct engine engine;
  gemmd_direct_weight *weight;
  uint64_t bytes;
  int fd;
  EXPECT(engine_open(&engine, &layers.daemon, LANES, ROWS_MOST));
  gemmd_direct_quiet(engine.direct, 1000); /* nothing is borrowed: nobody listens */
  EXPECT(engine_report(gemmd_direct_borrow(engine.direct, layers_name(2), &weight)));
  EXPECT(gemmd_shapes_open(engine.session, &fd, &bytes) == GEMMD_OK);
  void *told = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  EXPECT(told != MAP_FAILED);
  uint64_t products = seen_device(told, 0, now_ns()).products, begin = now_ns();
  gemmd_direct_quiet(engine.direct, 60000);
  struct seen_device device = seen_device(told, 0, now_ns());
  EXPECT(device.pause_until_ns >= begin + 60000000000u && device.pause_until_ns <= now_ns() + 60000000000u);
  gemmd_direct_quiet(engine.direct, 0);
  EXPECT(seen_device(told, 0, now_ns()).pause_until_ns == 0);
  gemmd_direct_quiet(engine.direct, 60000);
  EXPECT(computes(&engine, weight, 2, 3, GEMM_F32, GEMM_F32));
  device = seen_device(told, 0, now_ns());
  EXPECT(device.pause_until_ns == 0);
  EXPECT(device.products == products + 2);
  munmap(told, bytes);
  engine_close(&engine);
  return 0;
}

static void test_quiet(void **state) {
  clients_run(1, pause_and_go_on, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tune),
      cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_propose),
      cmocka_unit_test(test_quiet),
  };
  return cmocka_run_group_tests(tests, layers_start, layers_stop);
}
