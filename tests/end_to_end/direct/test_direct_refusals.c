/* Engines: what is refused, and whose it is: weights in parts are gemmd's to compute with, the CUDA context of a thread
 * its caller's. */
#include "client/gemmclient_direct.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/engine.h"
#include "tests/support/daemon/layers.h"
#include "tests/support/daemon/status.h"
#include "tests/support/system/gpu.h"
#include "tests/support/system/nap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS_MOST = 64, LANES = 2 };

static bool refused(const struct engine *engine, gemmd_direct_weight *weight, gemmd_direct_product product, int status,
                    const char *text) {
  int got = gemmd_direct_matmul(weight, &product, engine->stream);
  if (got == status && strstr(gemmd_direct_error(), text) != NULL)
    return true;
  fprintf(stderr, "expected %s, '%s'\n", gemmd_status_name(status), text);
  return false;
}

static bool refused_open(gemmd_session *session, gemmd_direct_options options, const char *text) {
  gemmd_direct *direct;
  return gemmd_direct_open(session, &options, &direct) == GEMMD_INVALID && direct == NULL &&
         strstr(gemmd_direct_error(), text) != NULL;
}

static int ask_wrongly(int index, void *user) {
  struct engine engine;
  gemmd_direct_weight *weight;
  struct engine_product right;
  EXPECT(engine_open(&engine, &layers.daemon, LANES, ROWS_MOST));
  const gemmd_direct_options options = {.bytes = sizeof options};
  gemmd_direct_options wrong = options;
  wrong.bytes = 4;
  EXPECT(refused_open(engine.session, wrong, "bytes"));
  wrong = options;
  wrong.lanes = 17;
  EXPECT(refused_open(engine.session, wrong, "lanes"));
  wrong = options;
  wrong.rows_most = -1;
  EXPECT(refused_open(engine.session, wrong, "rows_most"));
  EXPECT(gemmd_direct_borrow(engine.direct, "no such", &weight) == GEMMD_NOT_FOUND && weight == NULL);
  EXPECT(engine_report(gemmd_direct_borrow(engine.direct, layers_name(2), &weight)));
  EXPECT(engine_product_make(&engine, &right, weight, &layers.weights[2], 3, GEMM_F32, GEMM_F32, 5));
  gemmd_direct_product product = right.product;
  product.m = ROWS_MOST + 1;
  EXPECT(refused(&engine, weight, product, GEMMD_INVALID, "M must be 1..64, got 65"));
  product = right.product;
  product.lane = LANES;
  EXPECT(refused(&engine, weight, product, GEMMD_INVALID, "lane"));
  product = right.product;
  product.x = (const uint8_t *)product.x + 4;
  EXPECT(refused(&engine, weight, product, GEMMD_INVALID, "x must be aligned to 16 bytes"));
  product = right.product;
  product.y = right.x;
  EXPECT(refused(&engine, weight, product, GEMMD_INVALID, "y overlaps"));
  product = right.product;
  product.x_type = GEMMD_E4M3;
  EXPECT(refused(&engine, weight, product, GEMMD_UNSUPPORTED, "x type"));
  product = right.product;
  product.x_type = GEMMD_INT8;
  EXPECT(refused(&engine, weight, product, GEMMD_INVALID, "needs x_scale"));
  product = right.product;
  product.x_stride = 64;
  EXPECT(refused(&engine, weight, product, GEMMD_INVALID, "x stride"));
  product = right.product;
  product.bytes = 8;
  EXPECT(refused(&engine, weight, product, GEMMD_INVALID, "bytes"));
  EXPECT(engine_product_run(&engine, &right)); /* nothing is lost */
  engine_product_free(&engine, &right);
  engine_close(&engine);
  return 0;
}

static void test_refusals(void **state) {
  clients_run(1, ask_wrongly, NULL);
}

/* A weight of which each device has some rows is for gemmd to compute with. */
static int borrow_parts(int index, void *user) {
  const struct daemon *daemon = user;
  struct engine engine;
  gemmd_direct_weight *weight;
  EXPECT(engine_open(&engine, daemon, LANES, ROWS_MOST));
  EXPECT(gemmd_direct_borrow(engine.direct, "parts", &weight) == GEMMD_UNSUPPORTED && weight == NULL);
  EXPECT(strstr(gemmd_direct_error(), "parts on several devices") != NULL);
  EXPECT(engine_report(gemmd_direct_borrow(engine.direct, "copies", &weight)));
  EXPECT(engine_product_check(&engine, weight, &layers.weights[5], 1, 3, GEMM_F32, GEMM_F32));
  engine_close(&engine);
  return 0;
}

static void test_parts(void **state) {
  struct daemon daemon;
  gemmd_load load = {.name = "parts",
                     .tensor = layers_name(5),
                     .format = GEMMD_FORMAT_FP8,
                     .device = -1,
                     .placement = GEMMD_PLACEMENT_SPLIT};
  if (daemon_on_cuda())
    skip(); /* which may be the only one */
  daemon_make(&daemon, "devices = 2\n");
  daemon_start(&daemon);
  gemmd_session *session = daemon_join(&daemon, NULL);
  expect_ok(session, gemmd_weight_load_file(session, layers_model(), &load, NULL));
  load.name = "copies";
  load.placement = GEMMD_PLACEMENT_REPLICAS;
  expect_ok(session, gemmd_weight_load_file(session, layers_model(), &load, NULL));
  clients_run(1, borrow_parts, &daemon);
  gemmd_disconnect(session);
  daemon_end(&daemon);
}

/* The caller's context is as it was, and a thread need have none. */
static int keep_context(int index, void *user) {
  struct engine engine;
  gemmd_direct_weight *weight;
  struct engine_product product;
  if (!daemon_on_cuda())
    return 0;
  EXPECT(engine_open(&engine, &layers.daemon, LANES, ROWS_MOST));
  void *own = gpu_current();
  EXPECT(own != NULL);
  EXPECT(engine_report(gemmd_direct_borrow(engine.direct, layers_name(2), &weight)));
  EXPECT(gpu_current() == own);
  EXPECT(engine_product_make(&engine, &product, weight, &layers.weights[2], 3, GEMM_F32, GEMM_F32, 5));
  EXPECT(gpu_make_current(NULL));
  EXPECT(engine_report(gemmd_direct_matmul(weight, &product.product, engine.stream)));
  EXPECT(gpu_current() == NULL);
  EXPECT(engine_report(gemmd_direct_return(NULL)));
  EXPECT(gpu_make_current(own));
  EXPECT(engine_product_run(&engine, &product));
  EXPECT(engine_product_record(&engine, &product));
  EXPECT(gemmd_direct_return(weight) == GEMMD_BUSY);
  EXPECT(gemmd_direct_close(engine.direct) == GEMMD_BUSY);
  EXPECT(engine_product_run(&engine, &product));
  engine_product_free(&engine, &product);
  while (gemmd_direct_return(weight) == GEMMD_BUSY)
    nap_shortly();
  EXPECT(gpu_current() == own);
  engine_close(&engine);
  EXPECT(gpu_current() == own);
  return 0;
}

static void test_context(void **state) {
  if (!daemon_on_cuda())
    skip();
  clients_run(1, keep_context, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_parts),
      cmocka_unit_test(test_context),
  };
  return cmocka_run_group_tests(tests, layers_start, layers_stop);
}
