/* Plans in the worker: which submissions are one plan, when a plan is forgotten, and that what hangs on weights and
 * sessions lets go of them. */
#include "daemon/worker/serve/plans.h"
#include "tests/support/worker/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* ---- the table */

enum { ARENA_BYTES = 1 << 16, ENTRIES = 4 };

static _Alignas(4096) uint8_t arenas[2][ARENA_BYTES];

struct fixture {
  struct plans plans;
  struct engine_session sessions[2];
  struct engine_weight weights[2]; /* [32, 16] and [16, 16], each [N, K] */
};

static void open_fixture(struct fixture *fixture) {
  struct error error;
  *fixture =
      (struct fixture){.weights = {{.shape = {.n = 32, .k = 16, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW}},
                                   {.shape = {.n = 16, .k = 16, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW}}}};
  plans_init(&fixture->plans);
  for (uint32_t i = 0; i < 2; i++) {
    struct engine_session *session = &fixture->sessions[i];
    session->base = arenas[i];
    session->arena_bytes = ARENA_BYTES;
    session->tensor_offset = ring_tensor_offset(ENTRIES, 1);
    handles_init(&session->handles);
    /* each session has other handles */
    assert_int_equal(handles_add(&session->handles, 1 << 16 | i, &fixture->weights[0], &error), STATUS_OK);
    assert_int_equal(handles_add(&session->handles, 1 << 16 | (i ^ 1), &fixture->weights[1], &error), STATUS_OK);
  }
}

static void close_fixture(struct fixture *fixture) {
  plans_close(&fixture->plans);
  handles_close(&fixture->sessions[0].handles);
  handles_close(&fixture->sessions[1].handles);
}

/* A SwiGLU layer in the arena of session `i`, and its submission. */
static struct ring_submission describe(struct fixture *fixture, uint32_t i, enum gemm_type between, uint64_t bias) {
  struct engine_session *session = &fixture->sessions[i];
  const uint64_t at = session->tensor_offset;
  struct ring_step steps[] = {
      {.weight = 1 << 16 | i, .activation = GEMM_SILU, .gated = 1, .y_type = (uint8_t)between, .n = 32, .k = 16},
      {.weight = 1 << 16 | (i ^ 1), .y_type = GEMM_F32, .n = 16, .k = 16},
  };
  if (bias != 0)
    steps[1].bias_type = GEMM_F32;
  steps[1].bias_offset = bias;
  memcpy(session->base + at, steps, sizeof steps);
  return (struct ring_submission){.opcode = RING_OP_PLAN,
                                  .steps = 2,
                                  .plan_offset = at,
                                  .x_type = GEMM_F32,
                                  .y_type = GEMM_F32,
                                  .m = 1,
                                  .n = 16,
                                  .k = 16,
                                  .x_offset = at + 1024,
                                  .y_offset = at + 2048};
}

static struct engine_plan *find(struct fixture *fixture, uint32_t i, const struct ring_submission *submission) {
  struct gemm_product product;
  struct gemm_extent extent;
  struct engine_plan *plan = NULL;
  struct error error;
  assert_int_equal(ring_submission_product(submission, &product, &error), STATUS_OK);
  enum status status = plans_find(&fixture->plans, &fixture->sessions[i], submission, &product, &extent, &plan, &error);
  if (status != STATUS_OK)
    fail_msg("%s", error.text);
  return plan;
}

static struct engine_plan *find_plain(struct fixture *fixture, uint32_t i, enum gemm_type between, uint64_t bias) {
  struct ring_submission submission = describe(fixture, i, between, bias);
  return find(fixture, i, &submission);
}

static void equal_plans_are_one(void **state) {
  struct fixture fixture;
  open_fixture(&fixture);
  const uint64_t bias = fixture.sessions[0].tensor_offset + 4096;
  struct engine_plan *plan = find_plain(&fixture, 0, GEMM_F16, 0);
  assert_ptr_equal(find_plain(&fixture, 0, GEMM_F16, 0), plan);
  assert_ptr_equal(find_plain(&fixture, 1, GEMM_F16, 0), plan); /* by other handles */
  assert_ptr_equal(plan->weights[0], &fixture.weights[0]);
  assert_ptr_equal(plan->weights[1], &fixture.weights[1]);
  assert_null(plan->session);
  assert_ptr_not_equal(find_plain(&fixture, 0, GEMM_BF16, 0), plan);
  struct engine_plan *biased = find_plain(&fixture, 0, GEMM_F16, bias);
  assert_ptr_equal(biased->session, &fixture.sessions[0]);
  assert_ptr_equal(find_plain(&fixture, 0, GEMM_F16, bias), biased);
  assert_ptr_not_equal(find_plain(&fixture, 0, GEMM_F16, bias + 16), biased);
  assert_ptr_not_equal(find_plain(&fixture, 1, GEMM_F16, bias), biased);
  assert_int_equal(fixture.plans.count, 5);
  close_fixture(&fixture);
}

static void plans_go_with_what_they_name(void **state) {
  struct fixture fixture;
  open_fixture(&fixture);
  const uint64_t bias = fixture.sessions[0].tensor_offset + 4096;
  (void)find_plain(&fixture, 0, GEMM_F16, 0);
  (void)find_plain(&fixture, 0, GEMM_F16, bias);
  (void)find_plain(&fixture, 1, GEMM_F16, bias);
  plans_forget_session(&fixture.plans, &fixture.sessions[0]);
  assert_int_equal(fixture.plans.count, 2); /* the plain one serves the other session, too */
  plans_forget_weight(&fixture.plans, &fixture.weights[1]);
  assert_int_equal(fixture.plans.count, 0);
  close_fixture(&fixture);
}

static void the_table_is_bounded(void **state) {
  struct fixture fixture;
  open_fixture(&fixture);
  const uint64_t first = fixture.sessions[0].tensor_offset + 4096;
  struct engine_plan *used = find_plain(&fixture, 0, GEMM_F16, first);
  used->jobs = 1;
  for (uint64_t i = 1; i < 2 * PLANS_MOST; i++)
    find_plain(&fixture, 0, GEMM_F16, first + 16 * i)->jobs = 0;
  assert_int_equal(fixture.plans.count, PLANS_MOST);
  assert_ptr_equal(find_plain(&fixture, 0, GEMM_F16, first), used); /* older than all, but in use */
  struct engine_plan *plan;
  TAILQ_FOREACH (plan, &fixture.plans.list, link) {
    plan->jobs = 1;
  }
  struct ring_submission submission = describe(&fixture, 1, GEMM_BF16, 0);
  struct gemm_product product;
  struct gemm_extent extent;
  struct error error;
  assert_int_equal(ring_submission_product(&submission, &product, &error), STATUS_OK);
  /* Whoever fills it keeps nobody from a plan: one of its own, for one product. */
  for (int i = 0; i < 2; i++) {
    assert_int_equal(plans_find(&fixture.plans, &fixture.sessions[1], &submission, &product, &extent, &plan, &error),
                     STATUS_OK);
    assert_int_equal(fixture.plans.count, PLANS_MOST);
    assert_int_equal(plan->count, 2);
    plan->jobs = 1;
    plans_release(plan);
  }
  plans_release(used);
  assert_ptr_equal(find_plain(&fixture, 0, GEMM_F16, first), used); /* this one stays */
  close_fixture(&fixture);
}

/* ---- in the engine: the rig's one weight, RIG_N outputs, so that a plan has one step */

static struct ring_submission rig_plan(struct rig_client *client, unsigned slot) {
  struct ring_submission out = rig_product(client, slot, 2);
  const uint64_t at = client->session.arena_bytes - 4096;
  const struct ring_step step = {.weight = RIG_HANDLE, .y_type = GEMM_F32, .n = RIG_N, .k = RIG_K, .gated = 1};
  memcpy(client->session.base + at, &step, sizeof step);
  out.opcode = RING_OP_PLAN;
  out.steps = 1;
  out.plan_offset = at;
  out.x_type = out.y_type = GEMM_F32;
  out.x_scale_offset = 0;
  out.x_stride = out.y_stride = 0;
  out.n = RIG_N / 2;
  return out;
}

static void weights_and_sessions_are_let_go(void **state) {
  struct rig_control control;
  struct rig_client clients[2];
  rig_start_batching(&control, rig.ops, 0, 64, 0);
  for (unsigned i = 0; i < 2; i++)
    rig_join(&control, &clients[i]);
  for (unsigned round = 0; round < 50; round++) {
    for (unsigned i = 0; i < 8; i++)
      (void)rig_submit(&clients[i % 2], rig_plan(&clients[i % 2], i / 2));
    for (unsigned i = 0; i < 8; i++)
      assert_int_equal(rig_take(&clients[i % 2]).status, STATUS_OK);
  }
  for (unsigned i = 0; i < 2; i++)
    rig_leave(&control, &clients[i]);
  rig_stop(&control);
  assert_int_equal(rig.weight.handles, 0);
  assert_int_equal(rig.weight.jobs, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(equal_plans_are_one),
      cmocka_unit_test(plans_go_with_what_they_name),
      cmocka_unit_test(the_table_is_bounded),
      cmocka_unit_test_setup_teardown(weights_and_sessions_are_let_go, rig_open, rig_close),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
