/* Engines that compute over experts with weights that they have borrowed: on a GPU ids and routing are device memory.
 */
#include "client/gemmclient_direct.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/engine.h"
#include "tests/support/daemon/status.h"
#include "tests/support/reference/checkpoint.h"
#include "tests/support/reference/experts.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { E = 5, F = 64, HIDDEN = 96, T = 2, M = 9, PAIRS = M * T };

static const struct gemm_weight up_shape = {2 * F, HIDDEN, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, E, 0};
static const struct gemm_weight down_shape = {HIDDEN, F, GEMM_FORMAT_FP8, GEMM_SCALE_ROW, E, 0};

static struct daemon daemon_under_test;
static struct oracle_experts up, down;

static const struct oracle_layer_step layer_steps[] = {
    {.experts = &up, .y_type = GEMM_BF16, .activation = GEMM_SILU, .gated = true},
    {.experts = &down, .y_type = GEMM_F32},
};

/* ---- the daemon */

static void add_each(struct checkpoint *checkpoint, const char *name, const struct oracle_experts *experts) {
  for (int e = 0; e < E; e++) {
    char text[64];
    snprintf(text, sizeof text, "%s.%d", name, e);
    checkpoint_add_weight(checkpoint, text, &experts->each[e]);
  }
}

static void load(gemmd_session *session, const char *name, enum gemmd_format format) {
  char tensor[64];
  snprintf(tensor, sizeof tensor, "%s.{}", name);
  const gemmd_load request = {.name = name, .tensor = tensor, .format = format, .device = -1, .experts = E};
  expect_ok(session,
            gemmd_weight_load_file(session, daemon_path(&daemon_under_test, "model.safetensors"), &request, NULL));
}

static int start(void **state) {
  static struct checkpoint checkpoint;
  daemon_make(&daemon_under_test, "");
  oracle_experts_make(&up, &up_shape, 1);
  oracle_experts_make(&down, &down_shape, 2);
  add_each(&checkpoint, "up", &up);
  add_each(&checkpoint, "down", &down);
  checkpoint_write(&checkpoint, daemon_path(&daemon_under_test, "model.safetensors"));
  daemon_start(&daemon_under_test);
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  load(session, "up", GEMMD_FORMAT_INT8);
  load(session, "down", GEMMD_FORMAT_FP8);
  gemmd_disconnect(session);
  return 0;
}

static int stop(void **state) {
  daemon_end(&daemon_under_test);
  oracle_experts_free(&up);
  oracle_experts_free(&down);
  return 0;
}

/* ---- calls */

static const int32_t some_ids[PAIRS] = {0, 4, 3, 3, -1, 2, 4, 6, 1, 0, INT32_MIN, INT32_MAX, 2, 2, 1, 4, 0, 0};

struct call {
  const struct engine *engine;
  void *x, *y, *ids, *routing;
  uint32_t *skipped;
  gemmd_direct_product product;
  gemmd_direct_experts experts;
  struct oracle_layer right;
  int64_t columns;
};

static double element(const void *context, int64_t row, int64_t k) {
  uint64_t state = (uint64_t)(row * 4099 + k);
  return oracle_normal(&state);
}

static bool call_make(struct call *call, const struct engine *engine, bool x_pairs, bool sum,
                      const struct oracle_layer_step *steps, int count) {
  const struct oracle_filler filler = {.element = element};
  const uint32_t none = 0;
  int64_t rows = x_pairs ? PAIRS : M;
  size_t x_bytes = (size_t)(rows * HIDDEN) * sizeof(float);
  uint64_t seed = 9;
  float routing[PAIRS];
  struct oracle_x x;
  for (int i = 0; i < PAIRS; i++)
    routing[i] = (float)oracle_uniform(&seed);
  oracle_x_fill(&x, rows, HIDDEN, GEMM_F32, 1, &filler);
  const struct oracle_choice choice = {
      .ids = some_ids, .routing = sum ? routing : NULL, .m = M, .top = T, .x_pairs = x_pairs, .sum = sum};
  *call = (struct call){.engine = engine,
                        .right = oracle_layer(&x, &choice, steps, count),
                        .columns = steps[count - 1].experts->whole.shape.n};
  call->x = engine_alloc(engine, x_bytes);
  call->y = engine_alloc(engine, (size_t)(PAIRS * call->columns) * sizeof(float));
  call->ids = engine_alloc(engine, sizeof some_ids);
  call->routing = engine_alloc(engine, sizeof routing);
  call->skipped = engine_alloc(engine, sizeof none);
  call->product = (gemmd_direct_product){
      .bytes = sizeof call->product, .m = M, .x = call->x, .x_type = GEMMD_F32, .y = call->y, .y_type = GEMMD_F32};
  call->experts = (gemmd_direct_experts){.bytes = sizeof call->experts,
                                         .ids = call->ids,
                                         .routing = sum ? call->routing : NULL,
                                         .top = T,
                                         .x_pairs = x_pairs,
                                         .sum = sum,
                                         .skipped = call->skipped};
  bool put = call->x != NULL && call->y != NULL && call->ids != NULL && call->routing != NULL &&
             call->skipped != NULL && engine_put(engine, call->x, x.data, x_bytes) &&
             engine_put(engine, call->ids, some_ids, sizeof some_ids) &&
             engine_put(engine, call->routing, routing, sizeof routing) &&
             engine_put(engine, call->skipped, &none, sizeof none);
  oracle_x_free(&x);
  return put;
}

static bool call_right(const struct call *call) {
  float y[PAIRS * 2 * F];
  uint32_t skipped;
  if (!engine_get(call->engine, y, call->y, (size_t)(call->right.rows * call->columns) * sizeof *y) ||
      !engine_get(call->engine, &skipped, call->skipped, sizeof skipped))
    return false;
  if (skipped != call->right.skipped) {
    fprintf(stderr, "%u pairs were skipped, not %lld\n", skipped, (long long)call->right.skipped);
    return false;
  }
  for (int64_t row = 0; row < call->right.rows; row++) {
    double square = 0;
    for (int64_t i = row * call->columns; i < (row + 1) * call->columns; i++)
      square += ((double)y[i] - call->right.y[i]) * ((double)y[i] - call->right.y[i]);
    if (!(sqrt(square) <= call->right.off[row])) {
      fprintf(stderr, "row %lld is off by %g, allowed %g\n", (long long)row, sqrt(square), call->right.off[row]);
      return false;
    }
  }
  return true;
}

static void call_free(struct call *call) {
  void *const memory[] = {call->x, call->y, call->ids, call->routing, call->skipped};
  for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
    engine_free(call->engine, memory[i]);
  oracle_layer_free(&call->right);
}

/* ---- tests */

static int compute(int index, void *user) {
  static const struct oracle_layer_step step = {.experts = &up, .y_type = GEMM_F32};
  struct engine engine;
  struct call call;
  gemmd_direct_weight *first, *second;
  gemmd_direct_plan *plan;
  EXPECT(engine_open(&engine, &daemon_under_test, 1, M));
  EXPECT(engine_report(gemmd_direct_borrow(engine.direct, "up", &first)));
  EXPECT(engine_report(gemmd_direct_borrow(engine.direct, "down", &second)));
  EXPECT(gemmd_direct_get_info(first)->experts == E);
  const gemmd_direct_step steps[] = {
      {.weight = first, .y_type = GEMMD_BF16, .activation = GEMMD_SILU, .gated = true},
      {.weight = second, .y_type = GEMMD_F32},
  };
  EXPECT(engine_report(gemmd_direct_plan_create(steps, 2, &plan)));
  for (int i = 0; i < 4; i++) {
    EXPECT(call_make(&call, &engine, i % 2 == 1, i / 2 == 1, &step, 1));
    EXPECT(engine_report(gemmd_direct_experts_matmul(first, &call.product, &call.experts, engine.stream)));
    EXPECT(call_right(&call));
    call_free(&call);
    EXPECT(call_make(&call, &engine, i % 2 == 1, i / 2 == 1, layer_steps, 2));
    EXPECT(engine_report(gemmd_direct_experts_run(plan, &call.product, &call.experts, engine.stream)));
    EXPECT(call_right(&call));
    call_free(&call);
  }
  gemmd_direct_plan_free(plan);
  engine_close(&engine);
  return 0;
}

static void test_compute(void **state) {
  clients_run(2, compute, NULL);
}

static bool refused(int status, int expected, const char *text) {
  bool says = status == expected && strstr(gemmd_direct_error(), text) != NULL;
  if (!says)
    fprintf(stderr, "%s: %s; in place of ... %s\n", gemmd_status_name(status), gemmd_direct_error(), text);
  return says;
}

static int refuse(int index, void *user) {
  static const struct oracle_layer_step step = {.experts = &up, .y_type = GEMM_F32};
  struct engine engine;
  struct call call;
  gemmd_direct_weight *weight;
  EXPECT(engine_open(&engine, &daemon_under_test, 1, M));
  EXPECT(engine_report(gemmd_direct_borrow(engine.direct, "up", &weight)));
  EXPECT(call_make(&call, &engine, false, false, &step, 1));
  struct {
    gemmd_direct_experts experts;
    const char *text;
  } cases[] = {{call.experts, "bytes of the experts"},
               {call.experts, "ids must not be NULL"},
               {call.experts, "T must be 1..512, got 0"},
               {call.experts, "T must be 1..5, got 6"},
               {call.experts, "ids must be aligned to 16 bytes"},
               {call.experts, "y overlaps ids"},
               {call.experts, "routing must be NULL where there is no sum"},
               {call.experts, "skipped must be aligned"}};
  cases[0].experts.bytes = 8;
  cases[1].experts.ids = NULL;
  cases[2].experts.top = 0;
  cases[3].experts.top = E + 1;
  cases[4].experts.ids = (const int32_t *)call.ids + 1;
  cases[5].experts.ids = call.y;
  cases[6].experts.routing = call.routing;
  cases[7].experts.skipped = (uint32_t *)(void *)((uint8_t *)call.skipped + 2);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    EXPECT(refused(gemmd_direct_experts_matmul(weight, &call.product, &cases[i].experts, engine.stream), GEMMD_INVALID,
                   cases[i].text));
  EXPECT(refused(gemmd_direct_matmul(weight, &call.product, engine.stream), GEMMD_INVALID, "T must be 1..5, got 0"));
  call_free(&call);
  engine_close(&engine);
  return 0;
}

static void test_refused(void **state) {
  clients_run(1, refuse, NULL);
}

/* A library that was opened for none takes none. */
static int without_pairs(int index, void *user) {
  static const struct oracle_layer_step step = {.experts = &up, .y_type = GEMM_F32};
  const gemmd_direct_options options = {.bytes = sizeof options, .ordinal = -1, .lanes = 1, .rows_most = M};
  struct engine engine;
  struct call call;
  gemmd_direct *direct;
  gemmd_direct_weight *weight;
  EXPECT(engine_open(&engine, &daemon_under_test, 1, M));
  EXPECT(engine_report(gemmd_direct_open(engine.session, &options, &direct)));
  EXPECT(engine_report(gemmd_direct_borrow(direct, "up", &weight)));
  EXPECT(call_make(&call, &engine, false, false, &step, 1));
  EXPECT(refused(gemmd_direct_experts_matmul(weight, &call.product, &call.experts, engine.stream), GEMMD_INVALID, "T"));
  call_free(&call);
  EXPECT(engine_report(gemmd_direct_return(weight)));
  EXPECT(engine_report(gemmd_direct_close(direct)));
  engine_close(&engine);
  return 0;
}

static void test_without_pairs(void **state) {
  clients_run(1, without_pairs, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_compute),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_without_pairs),
  };
  return cmocka_run_group_tests(tests, start, stop);
}
