/* Weights with experts through a real gemmd: loaded as checkpoints have them, products and plans over them, what is
 * hostile, and a worker that dies. */
#include "client/gemmclient.h"
#include "proto/shm/plan.h"
#include "proto/shm/ring.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/status.h"
#include "tests/support/messages/raw.h"
#include "tests/support/reference/checkpoint.h"
#include "tests/support/reference/experts.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { E = 6, F = 80, HIDDEN = 96, T = 2, ROWS = 7 };

static const struct gemm_weight up_shape = {2 * F, HIDDEN, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, E, 0};
static const struct gemm_weight down_shape = {HIDDEN, F, GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK, E, 0};

static struct daemon daemon_under_test;
static struct oracle_experts up, down;
static gemmd_session *session;

static const struct oracle_layer_step layer_steps[] = {
    {.experts = &up, .y_type = GEMM_BF16, .activation = GEMM_SILU, .gated = true},
    {.experts = &down, .y_type = GEMM_F32},
};

/* ---- the checkpoint: a tensor an expert, gate and up apart; down as FP8 with blocks; and what is amiss */

static void add_rows(struct checkpoint *checkpoint, const char *name, const struct oracle_weight *weight, int64_t first,
                     int64_t rows) {
  char scale[64];
  snprintf(scale, sizeof scale, "%s_scale", name);
  checkpoint_add(checkpoint, name, "I8", rows, HIDDEN, weight->canonical + (uint64_t)first * weight->layout.row_bytes,
                 (uint64_t)(rows * HIDDEN));
  checkpoint_add(checkpoint, scale, "F32", rows, 1,
                 weight->canonical + weight->layout.scales_offset + (uint64_t)first * sizeof(float),
                 (uint64_t)rows * sizeof(float));
}

static void write_checkpoint(void) {
  static struct checkpoint checkpoint;
  char name[64];
  for (int e = 0; e < E; e++) {
    snprintf(name, sizeof name, "e.%d.gate", e);
    add_rows(&checkpoint, name, &up.each[e], 0, F);
    snprintf(name, sizeof name, "e.%d.up", e);
    add_rows(&checkpoint, name, &up.each[e], F, F);
    snprintf(name, sizeof name, "e.%d.down", e);
    checkpoint_add_weight(&checkpoint, name, &down.each[e]);
  }
  add_rows(&checkpoint, "odd.0.gate", &up.each[0], 0, F);
  add_rows(&checkpoint, "odd.1.gate", &up.each[1], 0, F - 1);
  checkpoint_write(&checkpoint, daemon_path(&daemon_under_test, "model.safetensors"));
}

static int load_up(gemmd_weight_info *info, unsigned experts, unsigned expert, const char *name) {
  static const char *const more[] = {"e.{}.up"};
  const gemmd_load load = {.name = name,
                           .tensor = "e.{}.gate",
                           .format = GEMMD_FORMAT_INT8,
                           .device = -1,
                           .experts = experts,
                           .expert = expert,
                           .more = more,
                           .more_count = 1};
  return gemmd_weight_load_file(session, daemon_path(&daemon_under_test, "model.safetensors"), &load, info);
}

static int start(void **state) {
  gemmd_weight_info info;
  daemon_make(&daemon_under_test, "");
  oracle_experts_make(&up, &up_shape, 1);
  oracle_experts_make(&down, &down_shape, 2);
  write_checkpoint();
  daemon_start(&daemon_under_test);
  session = daemon_join(&daemon_under_test, NULL);
  expect_ok(session, load_up(&info, E, 0, "up"));
  assert_int_equal(info.experts, E);
  assert_int_equal(info.n, 2 * F);
  assert_int_equal(info.k, HIDDEN);
  const gemmd_load load = {
      .name = "down", .tensor = "e.{}.down", .format = GEMMD_FORMAT_FP8, .device = -1, .experts = E};
  expect_ok(session,
            gemmd_weight_load_file(session, daemon_path(&daemon_under_test, "model.safetensors"), &load, NULL));
  return 0;
}

static int stop(void **state) {
  gemmd_disconnect(session);
  daemon_end(&daemon_under_test);
  oracle_experts_free(&up);
  oracle_experts_free(&down);
  return 0;
}

/* ---- calls */

struct call {
  gemmd_product product;
  gemmd_experts experts;
  struct oracle_layer right;
};

static const int32_t some_ids[ROWS * T] = {0, 5, 3, 3, -1, 2, 4, 6, 1, 0, INT32_MIN, INT32_MAX, 5, 5};
enum { SKIPPED = 4 };

static void *put(const void *data, size_t bytes) {
  void *memory = gemmd_alloc(session, bytes);
  assert_non_null(memory);
  return memcpy(memory, data, bytes);
}

static double element(const void *context, int64_t row, int64_t k) {
  uint64_t state = (uint64_t)(row * 4099 + k);
  return oracle_normal(&state);
}

static void call_make(struct call *call, bool x_pairs, bool sum, const struct oracle_layer_step *steps, int count) {
  const struct oracle_filler filler = {.element = element};
  const struct gemm_weight *last = &steps[count - 1].experts->whole.shape;
  int64_t rows = x_pairs ? ROWS * T : ROWS, y_rows = sum ? ROWS : ROWS * T;
  int64_t columns = steps[count - 1].gated ? last->n / 2 : last->n;
  uint64_t seed = 9;
  float routing[ROWS * T];
  struct oracle_x x;
  for (int i = 0; i < ROWS * T; i++)
    routing[i] = (float)oracle_uniform(&seed);
  oracle_x_fill(&x, rows, HIDDEN, GEMM_F32, 1, &filler);
  const struct oracle_choice choice = {
      .ids = some_ids, .routing = sum ? routing : NULL, .m = ROWS, .top = T, .x_pairs = x_pairs, .sum = sum};
  *call = (struct call){.right = oracle_layer(&x, &choice, steps, count)};
  call->product = (gemmd_product){.m = ROWS,
                                  .x = put(x.data, (size_t)(rows * HIDDEN) * sizeof(float)),
                                  .x_type = GEMMD_F32,
                                  .y = gemmd_alloc(session, (size_t)(y_rows * columns) * sizeof(float)),
                                  .y_type = (enum gemmd_type)steps[count - 1].y_type};
  call->experts = (gemmd_experts){.ids = put(some_ids, sizeof some_ids),
                                  .routing = sum ? put(routing, sizeof routing) : NULL,
                                  .top = T,
                                  .x_pairs = x_pairs,
                                  .sum = sum};
  oracle_x_free(&x);
}

static void call_check(const struct call *call, int64_t columns, const gemmd_result *result) {
  assert_int_equal(result->skipped, SKIPPED);
  for (int64_t row = 0; row < call->right.rows; row++) {
    double square = 0;
    for (int64_t i = row * columns; i < (row + 1) * columns; i++) {
      double off = oracle_element(call->product.y, i, (enum gemm_type)call->product.y_type) - call->right.y[i];
      square += off * off;
    }
    if (!(sqrt(square) <= call->right.off[row]))
      fail_msg("row %lld is off by %g, allowed %g", (long long)row, sqrt(square), call->right.off[row]);
  }
}

static void call_free(struct call *call) {
  gemmd_free(session, (void *)(uintptr_t)call->product.x);
  gemmd_free(session, call->product.y);
  gemmd_free(session, (void *)(uintptr_t)call->experts.ids);
  gemmd_free(session, (void *)(uintptr_t)call->experts.routing);
  oracle_layer_free(&call->right);
}

static gemmd_weight *open_weight(const char *name) {
  gemmd_weight *weight;
  expect_ok(session, gemmd_weight_open(session, name, &weight));
  return weight;
}

/* ---- products and plans */

static void test_products(void **state) {
  static const struct oracle_layer_step step = {.experts = &up, .y_type = GEMM_F32};
  gemmd_weight *weight = open_weight("up");
  assert_int_equal(gemmd_weight_get_info(weight)->experts, E);
  for (int i = 0; i < 4; i++) {
    struct call call;
    gemmd_result result;
    call_make(&call, i % 2 == 1, i / 2 == 1, &step, 1);
    expect_ok(session, gemmd_experts_matmul(weight, &call.product, &call.experts, &result));
    call_check(&call, 2 * F, &result);
    call_free(&call);
  }
  gemmd_weight_close(weight);
}

static gemmd_plan *make_plan(gemmd_weight *first, gemmd_weight *second) {
  const gemmd_step steps[] = {
      {.weight = first, .y_type = GEMMD_BF16, .activation = GEMMD_SILU, .gated = true},
      {.weight = second, .y_type = GEMMD_F32},
  };
  gemmd_plan *plan;
  expect_ok(session, gemmd_plan_create(session, steps, 2, &plan));
  return plan;
}

static void test_layer(void **state) {
  gemmd_weight *first = open_weight("up"), *second = open_weight("down");
  gemmd_plan *plan = make_plan(first, second);
  for (int i = 0; i < 4; i++) {
    struct call call;
    gemmd_result result;
    call_make(&call, i % 2 == 1, i / 2 == 1, layer_steps, 2);
    expect_ok(session, gemmd_experts_plan_run(plan, &call.product, &call.experts, &result));
    call_check(&call, HIDDEN, &result);
    call_free(&call);
  }
  gemmd_plan_free(plan);
  gemmd_weight_close(first);
  gemmd_weight_close(second);
}

/* The next worker has them, too. */
static void test_worker_killed(void **state) {
  gemmd_weight *first = open_weight("up"), *second = open_weight("down");
  gemmd_plan *plan = make_plan(first, second);
  struct call call;
  gemmd_result result;
  gemmd_daemon_info info;
  call_make(&call, false, true, layer_steps, 2);
  expect_ok(session, gemmd_daemon_status(session, &info));
  kill((pid_t)info.device[0].pid, SIGKILL);
  expect_ok(session, gemmd_experts_plan_run(plan, &call.product, &call.experts, &result));
  call_check(&call, HIDDEN, &result);
  call_free(&call);
  gemmd_plan_free(plan);
  gemmd_weight_close(first);
  gemmd_weight_close(second);
}

/* So has the next daemon, to which the catalog is handed over. */
static void test_upgrade(void **state) {
  gemmd_weight *weight = open_weight("down");
  static const struct oracle_layer_step step = {.experts = &up, .y_type = GEMM_F32};
  struct call call;
  gemmd_result result;
  gemmd_weight_info info;
  daemon_upgrade(&daemon_under_test);
  expect_ok(session, gemmd_weight_stat(session, "down", &info));
  assert_int_equal(info.experts, E);
  gemmd_weight *after = open_weight("up");
  call_make(&call, false, false, &step, 1);
  expect_ok(session, gemmd_experts_matmul(after, &call.product, &call.experts, &result));
  call_check(&call, 2 * F, &result);
  call_free(&call);
  gemmd_weight_close(weight);
  gemmd_weight_close(after);
}

/* ---- loading */

static void test_equal_content_is_shared(void **state) {
  gemmd_weight_info info;
  expect_ok(session, load_up(&info, E, 0, "again"));
  assert_true(info.shared);
  assert_int_equal(info.references, 2);
  expect_ok(session, gemmd_weight_unload(session, "again", NULL));
  /* fewer experts, or others, are other content */
  expect_ok(session, load_up(&info, E - 1, 1, "rank"));
  assert_false(info.shared);
  assert_int_equal(info.experts, E - 1);
  expect_ok(session, gemmd_weight_unload(session, "rank", NULL));
}

static void expect_load_refused(gemmd_load load, int status, const char *text) {
  load.name = "refused";
  load.device = -1;
  load.format = load.format != 0 ? load.format : GEMMD_FORMAT_INT8;
  assert_int_equal(gemmd_weight_load_file(session, daemon_path(&daemon_under_test, "model.safetensors"), &load, NULL),
                   status);
  if (strstr(gemmd_error(session), text) == NULL)
    fail_msg("'%s' does not say '%s'", gemmd_error(session), text);
}

static void test_loads_refused(void **state) {
  expect_load_refused((gemmd_load){.tensor = "e.{}.gate", .experts = E + 1}, GEMMD_NOT_FOUND, "no tensor 'e.6.gate'");
  expect_load_refused((gemmd_load){.tensor = "e.{}.gate", .experts = E, .expert = 1}, GEMMD_NOT_FOUND,
                      "no tensor 'e.6.gate'");
  expect_load_refused((gemmd_load){.tensor = "odd.{}.gate", .experts = 2}, GEMMD_UNSUPPORTED,
                      "'odd.1.gate' makes an expert of 79 x 96");
  expect_load_refused((gemmd_load){.tensor = "e.0.gate", .experts = 2}, GEMMD_UNSUPPORTED, "has 2 dimensions");
  expect_load_refused((gemmd_load){.tensor = "e.{}.gate", .experts = 513}, GEMMD_INVALID, "experts must be 0..512");
  expect_load_refused((gemmd_load){.tensor = "e.{}.gate", .experts = 2, .scale_tensor = "e.0.gate_scale"},
                      GEMMD_INVALID, "usual names");
  expect_load_refused((gemmd_load){.tensor = "e.{}.gate", .experts = 2, .placement = GEMMD_PLACEMENT_SPLIT},
                      GEMMD_UNSUPPORTED, "not split");
}

/* ---- what a caller, or a hostile client, may say */

static void expect_call_refused(int got, int status, const char *text) {
  assert_int_equal(got, status);
  if (strstr(gemmd_error(session), text) == NULL)
    fail_msg("'%s' does not say '%s'", gemmd_error(session), text);
}

static void test_calls_refused(void **state) {
  static const struct oracle_layer_step step = {.experts = &up, .y_type = GEMM_F32};
  gemmd_weight *first = open_weight("up"), *second = open_weight("down");
  gemmd_plan *plan;
  struct call call;
  call_make(&call, false, true, &step, 1);
  gemmd_experts experts = call.experts;
  expect_call_refused(gemmd_matmul(first, &call.product), GEMMD_INVALID, "T must be 1..6, got 0");
  experts.top = 7;
  expect_call_refused(gemmd_experts_matmul(first, &call.product, &experts, NULL), GEMMD_INVALID,
                      "T must be 1..6, got 7");
  experts = call.experts;
  experts.ids = some_ids;
  expect_call_refused(gemmd_experts_matmul(first, &call.product, &experts, NULL), GEMMD_INVALID, "ids");
  experts = call.experts;
  experts.sum = false;
  expect_call_refused(gemmd_experts_matmul(first, &call.product, &experts, NULL), GEMMD_INVALID, "routing");
  const gemmd_step steps[] = {
      {.weight = second, .y_type = GEMMD_BF16, .activation = GEMMD_SILU, .gated = true},
      {.weight = first, .y_type = GEMMD_F32},
  };
  expect_call_refused(gemmd_plan_create(session, steps, 2, &plan), GEMMD_INVALID, "step 1: K must be 48, got 96");
  plan = make_plan(first, second);
  expect_call_refused(gemmd_plan_run(plan, &call.product), GEMMD_INVALID, "T must be 1..6, got 0");
  gemmd_plan_free(plan);
  call_free(&call);
  gemmd_weight_close(first);
  gemmd_weight_close(second);
}

struct hostile {
  struct ring_submission entry;
  const char *text;
};

/* It must be refused with a sentence that contains the text. */
static void try(struct raw_session *raw, const struct hostile *hostile) {
  struct ring_completion completion;
  struct error error;
  raw_submit(raw, &hostile->entry, &completion);
  ring_completion_to_error(&completion, &error);
  bool says = strstr(error.text, hostile->text) != NULL;
  if (error.status == STATUS_OK || !says)
    fail_msg("%s: %s; in place of ... %s", status_name(error.status), error.text, hostile->text);
}

/* Straight into the ring, past the library's checks. */
static void test_hostile_entries(void **state) {
  struct raw_session raw;
  raw_open(&raw, daemon_under_test.socket, 4, "up");
  const uint64_t at = raw.tensor_offset;
  const struct ring_submission good = {.tag = 1,
                                       .opcode = RING_OP_EXPERTS,
                                       .weight = raw.handle,
                                       .x_type = GEMM_F32,
                                       .y_type = GEMM_F32,
                                       .m = 2,
                                       .n = 2 * F,
                                       .k = HIDDEN,
                                       .x_offset = at + 4096,
                                       .y_offset = at + 8192,
                                       .choice = {.top = T},
                                       .ids_offset = at};
  struct hostile cases[] = {
      {good, "T must be 1..512, got 0"},
      {good, "T must be 1..6, got 7"},
      {good, "T must be 1..6, got 4294967295"},
      {good, "reserved must be 0, got 1"},
      {good, "reserved must be 0, got 1"},
      {good, "reserved must be 0, got 1"},
      {good, "routing offset must be 0, got 1"},
      {good, "routing offset must be 0"},
      {good, "ids offset must be"},
      {good, "ids offset must be a multiple of 16"},
      {good, ": y overlaps them"},
      {good, "routing offset must be"},
      {good, "bytes must be"},
      {good, "pairs must be 1..16777216, got 33554430"},
      {good, "x type int8"},
      {good, "T must be 1..6, got 0"},
      {good, "steps must be 1..16, got 17"},
      {good, "x tensor"},
  };
  cases[0].entry.choice.top = 0;
  cases[1].entry.choice.top = E + 1;
  cases[2].entry.choice.top = UINT32_MAX;
  cases[3].entry.choice.x_pairs = 2;
  cases[4].entry.choice.sum = 255;
  cases[5].entry.choice.reserved = 1;
  cases[6].entry.routing_offset = at;
  cases[7].entry.choice.routed = 1;
  cases[7].entry.routing_offset = at;
  cases[8].entry.ids_offset = UINT64_MAX - 15;
  cases[9].entry.ids_offset = at + 4;
  cases[10].entry.ids_offset = at + 8208;
  cases[11].entry.choice.routed = cases[11].entry.choice.sum = 1;
  cases[12].entry.m = 1 << 22;
  cases[13].entry.m = (1 << 24) - 1;
  cases[14].entry.x_type = GEMM_INT8;
  cases[15].entry.opcode = RING_OP_PRODUCT;
  cases[15].entry.choice.top = 0;
  cases[15].entry.ids_offset = 0;
  cases[16].entry.steps = 17;
  cases[16].entry.plan_offset = at;
  cases[17].entry.x_tensor = 1 << 16;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    try(&raw, &cases[i]);
  struct ring_completion completion;
  memset((uint8_t *)raw.arena + at, 0xff, 8192);
  raw_submit(&raw, &good, &completion);
  assert_int_equal(completion.status, STATUS_OK);
  assert_int_equal(completion.skipped, 2 * T); /* every id is -1 */
  for (uint64_t i = 0; i < (uint64_t)(2 * T * 2 * F); i++)
    assert_true(((const float *)(const void *)((uint8_t *)raw.arena + good.y_offset))[i] == 0.0f);
  raw_close(&raw);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_products),
      cmocka_unit_test(test_layer),
      cmocka_unit_test(test_worker_killed),
      cmocka_unit_test(test_upgrade),
      cmocka_unit_test(test_equal_content_is_shared),
      cmocka_unit_test(test_loads_refused),
      cmocka_unit_test(test_calls_refused),
      cmocka_unit_test(test_hostile_entries),
  };
  return cmocka_run_group_tests(tests, start, stop);
}
