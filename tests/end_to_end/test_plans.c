/* Plans through a real gemmd: processes that share the weights, workers and daemons that die under them, weights that
 * go, and descriptions that cannot be. */
#include "client/gemmclient.h"
#include "proto/shm/plan.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/status.h"
#include "tests/support/messages/raw.h"
#include "tests/support/reference/checkpoint.h"
#include "tests/support/reference/plan.h"
#include "tests/support/system/nap.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

enum { F = 160, HIDDEN = 96, ROWS = 7, CLIENTS = 2, IN_FLIGHT = 4, TURNS = 25, KILLS = 4 };

static const struct gemm_weight up_shape = {2 * F, HIDDEN, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0};
static const struct gemm_weight down_shape = {HIDDEN, F, GEMM_FORMAT_FP8, GEMM_SCALE_ROW, 0, 0};

static struct daemon daemon_under_test;
static struct oracle_weight up, down;

/* ---- the layer: SwiGLU over fused gate and up, then down */

static const struct oracle_step oracle_steps[] = {
    {.weight = &up, .y_type = GEMM_F16, .activation = GEMM_SILU, .gated = true},
    {.weight = &down, .y_type = GEMM_F32},
};

struct layer {
  gemmd_session *session;
  gemmd_weight *up, *down;
  gemmd_plan *plan;
};

static bool report(gemmd_session *session, int status) {
  if (status != GEMMD_OK)
    fprintf(stderr, "%s: %s\n", gemmd_status_name(status), gemmd_error(session));
  return status == GEMMD_OK;
}

static bool layer_open(struct layer *layer) {
  *layer = (struct layer){.session = NULL};
  if (!report(layer->session, gemmd_connect(&layer->session, daemon_under_test.socket, NULL)) ||
      !report(layer->session, gemmd_weight_open(layer->session, "up", &layer->up)) ||
      !report(layer->session, gemmd_weight_open(layer->session, "down", &layer->down)))
    return false;
  const gemmd_step steps[] = {
      {.weight = layer->up, .y_type = GEMMD_F16, .activation = GEMMD_SILU, .gated = true},
      {.weight = layer->down, .y_type = GEMMD_F32},
  };
  return report(layer->session, gemmd_plan_create(layer->session, steps, 2, &layer->plan));
}

/* Rows for the layer, and what must come out. */
struct call {
  gemmd_product product;
  struct oracle_answer right;
  uint64_t ticket;
};

static bool call_make(struct call *call, gemmd_session *session, int64_t m, uint64_t seed) {
  struct oracle_x x;
  oracle_x_make(&x, m, HIDDEN, GEMM_F32, 1, seed);
  size_t x_bytes = (size_t)(m * HIDDEN) * sizeof(float);
  *call = (struct call){.product = {.m = (uint32_t)m,
                                    .x = gemmd_alloc(session, x_bytes),
                                    .x_type = GEMMD_F32,
                                    .y = gemmd_alloc(session, x_bytes),
                                    .y_type = GEMMD_F32},
                        .right = oracle_plan(&x, oracle_steps, 2)};
  if (call->product.x == NULL || call->product.y == NULL)
    return report(session, GEMMD_NOMEM);
  memcpy((void *)(uintptr_t)call->product.x, x.data, x_bytes);
  oracle_x_free(&x);
  return true;
}

static void call_forget(struct call *call) {
  memset(call->product.y, 0xfd, call->product.m * (size_t)HIDDEN * sizeof(float));
}

static bool call_right(const struct call *call) {
  for (int64_t row = 0; row < call->product.m; row++) {
    const float *y = (const float *)call->product.y + row * HIDDEN;
    double error = oracle_row_error(down_shape.format, call->right.y + row * HIDDEN, y, GEMM_F32, HIDDEN);
    if (row % ORACLE_ROW_KINDS == ORACLE_ROW_TINY || error <= call->right.gates[row])
      continue;
    fprintf(stderr, "row %lld: error %g\n", (long long)row, error);
    return false;
  }
  return true;
}

static void call_free(struct call *call, gemmd_session *session) {
  gemmd_free(session, (void *)(uintptr_t)call->product.x);
  gemmd_free(session, call->product.y);
  oracle_answer_free(&call->right);
}

static void expect_right(struct layer *layer) {
  struct call call;
  assert_true(call_make(&call, layer->session, ROWS, 5));
  call_forget(&call);
  expect_ok(layer->session, gemmd_plan_run(layer->plan, &call.product));
  assert_true(call_right(&call));
  call_free(&call, layer->session);
}

/* ---- the daemon */

static int start(void **state) {
  static struct checkpoint checkpoint;
  daemon_make(&daemon_under_test, "");
  oracle_weight_make(&up, &up_shape, 1);
  oracle_weight_make(&down, &down_shape, 2);
  checkpoint_add_weight(&checkpoint, "up", &up);
  checkpoint_add_weight(&checkpoint, "down", &down);
  checkpoint_write(&checkpoint, daemon_path(&daemon_under_test, "model.safetensors"));
  daemon_start(&daemon_under_test);
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  daemon_load(session, &daemon_under_test, "up", GEMMD_FORMAT_INT8);
  daemon_load(session, &daemon_under_test, "down", GEMMD_FORMAT_FP8);
  gemmd_disconnect(session);
  return 0;
}

static int stop(void **state) {
  daemon_end(&daemon_under_test);
  oracle_weight_free(&up);
  oracle_weight_free(&down);
  return 0;
}

/* ---- several processes */

struct scene {
  bool until_told; /* else a number of turns */
  _Atomic bool stop;
  _Atomic uint64_t turns[CLIENTS];
};

static bool turn(struct layer *layer, struct call *calls) {
  for (int i = 0; i < IN_FLIGHT; i++) {
    call_forget(&calls[i]);
    if (!report(layer->session, gemmd_plan_submit(layer->plan, &calls[i].product, &calls[i].ticket)))
      return false;
  }
  for (int i = 0; i < IN_FLIGHT; i++)
    if (!report(layer->session, gemmd_wait(layer->session, calls[i].ticket, -1, NULL)) || !call_right(&calls[i]))
      return false;
  return true;
}

static int client(int index, void *user) {
  struct scene *scene = user;
  struct layer layer;
  struct call calls[IN_FLIGHT];
  bool good = layer_open(&layer);
  for (int i = 0; good && i < IN_FLIGHT; i++)
    good = call_make(&calls[i], layer.session, 1 + (index + i) % 5, (uint64_t)(10 * index + i));
  for (int turns = 0; good && (scene->until_told ? !atomic_load(&scene->stop) : turns < TURNS); turns++) {
    good = turn(&layer, calls);
    atomic_fetch_add(&scene->turns[index], 1);
  }
  for (int i = 0; good && i < IN_FLIGHT; i++)
    call_free(&calls[i], layer.session);
  gemmd_disconnect(layer.session);
  return good ? 0 : 1;
}

static void processes_share_the_weights(void **state) {
  struct scene *scene = clients_share(sizeof *scene);
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  gemmd_daemon_info before, after;
  expect_ok(session, gemmd_daemon_status(session, &before));
  clients_run(CLIENTS, client, scene);
  expect_ok(session, gemmd_daemon_status(session, &after));
  assert_int_equal(after.weights, 2);
  assert_true(after.weight_bytes == before.weight_bytes);
  assert_int_equal(after.device[0].requests - before.device[0].requests, CLIENTS * TURNS * IN_FLIGHT);
  assert_int_equal(after.device[0].failures, before.device[0].failures);
  gemmd_disconnect(session);
}

static void await_turns(gemmd_session *session, struct scene *scene) {
  uint64_t from[CLIENTS];
  for (int i = 0; i < CLIENTS; i++)
    from[i] = atomic_load(&scene->turns[i]);
  for (int i = 0; i < CLIENTS; i++)
    for (; atomic_load(&scene->turns[i]) < from[i] + 3; nap_shortly())
      expect_ok(session, gemmd_ping(session, NULL));
}

static void the_worker_is_killed_under_plans(void **state) {
  struct scene *scene = clients_share(sizeof *scene);
  struct clients clients;
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  scene->until_told = true;
  clients_start(&clients, CLIENTS, client, scene);
  for (int i = 0; i < KILLS; i++) {
    await_turns(session, scene);
    device_kill_worker(session);
  }
  await_turns(session, scene);
  atomic_store(&scene->stop, true);
  clients_wait(&clients);
  gemmd_disconnect(session);
}

/* The next daemon gives other handles: other weights are opened there first. */
static void gemmd_is_replaced_under_plans(void **state) {
  struct layer layer;
  gemmd_session *other = daemon_join(&daemon_under_test, NULL);
  gemmd_weight *first;
  assert_true(layer_open(&layer));
  expect_right(&layer);
  expect_ok(other, gemmd_weight_open(other, "down", &first));
  for (int i = 0; i < 2; i++) {
    gemmd_weight *more; /* in front of the others when they are opened again */
    expect_ok(layer.session, gemmd_weight_open(layer.session, "down", &more));
    daemon_upgrade(&daemon_under_test);
    expect_right(&layer);
  }
  gemmd_disconnect(other);
  gemmd_disconnect(layer.session);
}

/* The handle that the closed one had is another weight's there. */
static void a_closed_weight_stays_closed_when_gemmd_is_replaced(void **state) {
  struct layer layer;
  struct call call;
  gemmd_weight *same;
  assert_true(layer_open(&layer));
  assert_true(call_make(&call, layer.session, ROWS, 5));
  gemmd_weight_close(layer.up);
  gemmd_weight_close(layer.down);
  expect_ok(layer.session, gemmd_weight_open(layer.session, "down", &layer.down));
  expect_ok(layer.session, gemmd_weight_open(layer.session, "up", &same));
  assert_int_equal(gemmd_plan_run(layer.plan, &call.product), GEMMD_NOT_FOUND);
  daemon_upgrade(&daemon_under_test);
  assert_int_equal(gemmd_plan_run(layer.plan, &call.product), GEMMD_NOT_FOUND);
  gemmd_plan_free(layer.plan);
  call_free(&call, layer.session);
  gemmd_disconnect(layer.session);
}

/* ---- weights that go */

static void a_weight_is_unloaded_under_a_plan(void **state) {
  struct layer layer;
  struct call call;
  uint64_t freed;
  assert_true(layer_open(&layer));
  assert_true(call_make(&call, layer.session, ROWS, 5));
  expect_ok(layer.session, gemmd_weight_unload(layer.session, "up", &freed));
  assert_true(freed == 0); /* it is open */
  expect_right(&layer);
  gemmd_weight_close(layer.up);
  assert_int_equal(gemmd_plan_run(layer.plan, &call.product), GEMMD_NOT_FOUND);
  assert_non_null(strstr(gemmd_error(layer.session), "weight"));
  gemmd_weight_info info;
  assert_int_equal(gemmd_weight_stat(layer.session, "up", &info), GEMMD_NOT_FOUND);
  gemmd_plan_free(layer.plan);
  call_free(&call, layer.session);
  daemon_load(layer.session, &daemon_under_test, "up", GEMMD_FORMAT_INT8);
  gemmd_disconnect(layer.session);
  assert_true(layer_open(&layer));
  expect_right(&layer);
  gemmd_disconnect(layer.session);
}

/* ---- refusals */

static void expect_refusal(struct layer *layer, const gemmd_step *steps, unsigned count, int status, const char *text) {
  gemmd_plan *plan;
  assert_int_equal(gemmd_plan_create(layer->session, steps, count, &plan), status);
  assert_null(plan);
  if (strstr(gemmd_error(layer->session), text) == NULL)
    fail_msg("\"%s\" in place of \"... %s\"", gemmd_error(layer->session), text);
}

static void plans_that_cannot_be(void **state) {
  struct layer layer;
  assert_true(layer_open(&layer));
  const gemmd_step good[] = {
      {.weight = layer.up, .y_type = GEMMD_F16, .activation = GEMMD_SILU, .gated = true},
      {.weight = layer.down, .y_type = GEMMD_F32},
  };
  gemmd_step steps[17];
  for (int i = 0; i < COUNT(steps); i++)
    steps[i] = good[i % 2];
  expect_refusal(&layer, good, 0, GEMMD_INVALID, "steps must be 1..16, got 0");
  expect_refusal(&layer, steps, 17, GEMMD_INVALID, "steps must be 1..16, got 17");
  steps[0].gated = false;
  expect_refusal(&layer, steps, 2, GEMMD_INVALID, "step 1: K must be 320, got 160");
  steps[0] = good[0];
  steps[0].y_type = GEMMD_S32;
  expect_refusal(&layer, steps, 2, GEMMD_UNSUPPORTED, "step 0: y type s32");
  steps[0].y_type = GEMMD_TYPE_NONE;
  expect_refusal(&layer, steps, 2, GEMMD_UNSUPPORTED, "step 0: y type");
  steps[0] = good[0];
  steps[0].activation = (enum gemmd_activation)5;
  expect_refusal(&layer, steps, 2, GEMMD_INVALID, "step 0: activation must be 0..4, got 5");
  steps[0] = good[0];
  steps[1].weight = NULL;
  expect_refusal(&layer, steps, 2, GEMMD_INVALID, "step 1: weight must be one that this session has open");
  steps[1] = good[1];
  steps[1].bias = steps;
  steps[1].bias_type = GEMMD_F32;
  expect_refusal(&layer, steps, 2, GEMMD_INVALID, "step 1: bias must lie in the session's arena");
  expect_right(&layer);
  gemmd_disconnect(layer.session);
}

static void calls_that_cannot_be(void **state) {
  struct layer layer;
  struct call call;
  assert_true(layer_open(&layer));
  assert_true(call_make(&call, layer.session, ROWS, 5));
  float *bias = gemmd_alloc(layer.session, 2 * F * sizeof *bias);
  const struct {
    gemmd_product product;
    int status;
    const char *text;
  } cases[] = {
      {{.m = 0, .x = call.product.x, .x_type = GEMMD_F32, .y = call.product.y, .y_type = GEMMD_F32},
       GEMMD_INVALID,
       "M must be"},
      {{.m = 1, .x = call.product.x, .x_type = GEMMD_E4M3, .x_scale = bias, .y = call.product.y, .y_type = GEMMD_F32},
       GEMMD_UNSUPPORTED,
       "x type e4m3"},
      {{.m = 1, .x = call.product.x, .x_type = GEMMD_F32, .y = call.product.y, .y_type = GEMMD_F16},
       GEMMD_UNSUPPORTED,
       "y type f16"},
      {{.m = 1, .x = call.product.x, .x_type = GEMMD_F32, .y = bias + 4, .y_type = GEMMD_F32, .y_stride = 4},
       GEMMD_INVALID,
       "y stride"},
      {{.m = 1, .x = call.product.x, .x_type = GEMMD_F32, .y = (void *)(uintptr_t)call.product.x, .y_type = GEMMD_F32},
       GEMMD_INVALID,
       "y overlaps"},
      {{.m = 1,
        .x = call.product.x,
        .x_type = GEMMD_F32,
        .y = call.product.y,
        .y_type = GEMMD_F32,
        .bias = bias,
        .bias_type = GEMMD_F32},
       GEMMD_UNSUPPORTED,
       "bias type f32"},
  };
  for (int i = 0; i < COUNT(cases); i++) {
    uint64_t ticket;
    assert_int_equal(gemmd_plan_submit(layer.plan, &cases[i].product, &ticket), cases[i].status);
    assert_true(ticket == 0);
    if (strstr(gemmd_error(layer.session), cases[i].text) == NULL)
      fail_msg("\"%s\" in place of \"... %s\"", gemmd_error(layer.session), cases[i].text);
  }
  /* y where a bias of the plan lies */
  const gemmd_step steps[] = {{.weight = layer.up, .y_type = GEMMD_F32, .bias = bias, .bias_type = GEMMD_F32}};
  gemmd_plan *biased;
  expect_ok(layer.session, gemmd_plan_create(layer.session, steps, 1, &biased));
  gemmd_product over = {.m = 1, .x = call.product.x, .x_type = GEMMD_F32, .y = bias, .y_type = GEMMD_F32};
  assert_int_equal(gemmd_plan_run(biased, &over), GEMMD_INVALID);
  assert_non_null(strstr(gemmd_error(layer.session), "y overlaps"));
  call_free(&call, layer.session);
  expect_right(&layer);
  gemmd_disconnect(layer.session);
}

/* ---- by hand, as no library writes them */

struct hostile {
  struct ring_submission submission;
  struct ring_step steps[2];
  enum status status;
  const char *text;
};

static void try(struct raw_session *session, const struct hostile *hostile) {
  struct ring_completion completion;
  struct error error = {.text = ""};
  memcpy((uint8_t *)session->arena + session->tensor_offset, hostile->steps, sizeof hostile->steps);
  raw_submit(session, &hostile->submission, &completion);
  ring_completion_to_error(&completion, &error);
  if (completion.status != hostile->status || strstr(error.text, hostile->text) == NULL)
    fail_msg("%s: %s; in place of %s: ... %s", status_name(error.status), error.text, status_name(hostile->status),
             hostile->text);
}

static void hostile_plans(void **state) {
  struct raw_session session;
  raw_open(&session, daemon_under_test.socket, 4, "up");
  const uint64_t at = session.tensor_offset;
  const struct ring_step step = {
      .weight = session.handle, .activation = GEMM_SILU, .gated = 1, .y_type = GEMM_F32, .n = 2 * F, .k = HIDDEN};
  const struct hostile good = {.submission = {.tag = 1,
                                              .opcode = RING_OP_PLAN,
                                              .steps = 1,
                                              .plan_offset = at,
                                              .x_type = GEMM_F32,
                                              .y_type = GEMM_F32,
                                              .m = 1,
                                              .n = F,
                                              .k = HIDDEN,
                                              .x_offset = at + 4096,
                                              .y_offset = at + 8192},
                               .steps = {step, step},
                               .text = ""};
  struct hostile cases[] = {
      {.text = "steps must be 1..16, got 0"},
      {.text = "steps must be 1..16, got 17"},
      {.text = "plan offset must be"},
      {.text = "plan offset must be"},
      {.text = "plan offset must be a multiple of 64"},
      {.text = "weight"},
      {.text = "N must be 320, got 319"},
      {.text = "K must be 96, got 97"},
      {.text = "activation must be 0..4, got 200"},
      {.text = "gated must be 0..1, got 2"},
      {.text = "y type s32"},
      {.text = "y type unknown"},
      {.text = "bias type int8"},
      {.text = "bias offset must be"},
      {.text = "bias offset must be"},
      {.text = "reserved must be 0"},
      {.text = "K must be 160, got 96"},
      {.text = "N must be 160, got 320"},
      {.text = "K must be 96, got 95"},
      {.text = "y type f16"},
      {.text = "y offset must be"},
  };
  for (int i = 0; i < COUNT(cases); i++) {
    const char *text = cases[i].text;
    cases[i] = good;
    cases[i].text = text;
    cases[i].status = STATUS_INVALID;
  }
  cases[0].submission.steps = 0;
  cases[1].submission.steps = 17;
  cases[2].submission.plan_offset = 0;
  cases[3].submission.plan_offset = session.bytes - 32;
  cases[4].submission.plan_offset = at + 8;
  cases[5].steps[0].weight += 1 << 16;
  cases[5].status = STATUS_NOT_FOUND;
  cases[6].steps[0].n = 2 * F - 1;
  cases[7].steps[0].k = HIDDEN + 1;
  cases[8].steps[0].activation = 200;
  cases[9].steps[0].gated = 2;
  cases[10].steps[0].y_type = GEMM_S32;
  cases[11].steps[0].y_type = 255;
  cases[12].steps[0].bias_type = GEMM_INT8;
  cases[10].status = cases[11].status = cases[12].status = STATUS_UNSUPPORTED;
  cases[13].steps[0].bias_type = GEMM_F32;
  cases[14].steps[0].bias_type = GEMM_F32;
  cases[14].steps[0].bias_offset = session.bytes - 16;
  cases[15].steps[0].reserved[39] = 1;
  cases[16].submission.steps = 2;
  cases[17].submission.n = 2 * F;
  cases[18].submission.k = HIDDEN - 1;
  cases[19].submission.y_type = GEMM_F16;
  cases[19].status = STATUS_UNSUPPORTED;
  cases[20].submission.y_offset = UINT64_MAX - 15;
  for (int i = 0; i < COUNT(cases); i++)
    try(&session, &cases[i]);
  try(&session, &good);
  raw_close(&session);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(processes_share_the_weights),
      cmocka_unit_test(the_worker_is_killed_under_plans),
      cmocka_unit_test(gemmd_is_replaced_under_plans),
      cmocka_unit_test(a_closed_weight_stays_closed_when_gemmd_is_replaced),
      cmocka_unit_test(a_weight_is_unloaded_under_a_plan),
      cmocka_unit_test(plans_that_cannot_be),
      cmocka_unit_test(calls_that_cannot_be),
      cmocka_unit_test(hostile_plans),
  };
  return cmocka_run_group_tests(tests, start, stop);
}
