/* A plan as its client writes it: a good submission and a good description with bytes of both replaced. What the worker
 * takes from them must be a plan whose tensors lie in the arena and whose steps follow from one another, or be refused;
 * the same bytes give the same plan, and the table stays bounded. */
#include "daemon/worker/serve/plans.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ENTRIES = 4, ARENA_BYTES = 1 << 16, STEPS = 4, HANDLES = 3 };

static _Alignas(4096) uint8_t arena[ARENA_BYTES];

static struct engine_weight weights[HANDLES] = {
    {.shape = {.n = 64, .k = 16, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW}},
    {.shape = {.n = 16, .k = 32, .format = GEMM_FORMAT_FP8, .scale = GEMM_SCALE_BLOCK}},
    {.shape = {.n = 16, .k = 16, .format = GEMM_FORMAT_F16, .scale = GEMM_SCALE_NONE}},
};

struct input {
  struct ring_submission submission;
  struct ring_step steps[STEPS];
};

static struct input good_input(uint64_t begin) {
  struct input input = {.submission = {.opcode = RING_OP_PLAN,
                                       .steps = STEPS,
                                       .plan_offset = begin,
                                       .x_type = GEMM_F16,
                                       .y_type = GEMM_F16,
                                       .m = 3,
                                       .n = 16,
                                       .k = 16,
                                       .x_offset = begin + 1024,
                                       .y_offset = begin + 4096}};
  for (uint32_t i = 0; i < STEPS; i++) {
    const struct gemm_weight *shape = &weights[i % HANDLES].shape;
    input.steps[i] = (struct ring_step){.weight = 1 << 16 | i % HANDLES,
                                        .activation = GEMM_SILU,
                                        .gated = i % HANDLES == 0,
                                        .y_type = GEMM_F16,
                                        .n = (uint32_t)shape->n,
                                        .k = (uint32_t)shape->k};
  }
  input.submission.n = 32; /* the last step is a gated one */
  return input;
}

static bool inside(const void *from, uint64_t bytes, const struct engine_session *session) {
  uint64_t offset = (uint64_t)((const uint8_t *)from - session->base);
  return offset >= session->tensor_offset && offset <= session->arena_bytes && bytes <= session->arena_bytes - offset;
}

static void check(const struct engine_session *session, const struct engine_plan *plan,
                  const struct gemm_product *product, const struct gemm_extent *extent) {
  int64_t columns = product->k;
  for (uint32_t i = 0; i < plan->count; i++) {
    const struct gemm_weight *shape = &plan->weights[i]->shape;
    const struct backend_step *step = &plan->steps[i];
    if (shape->k != columns || (step->gated && shape->n % 2 != 0) ||
        (step->bias != NULL && !inside(step->bias, (uint64_t)shape->n * gemm_type_bytes(step->bias_type), session)))
      abort();
    columns = step->gated ? shape->n / 2 : shape->n;
  }
  if (columns != product->n || !inside(session->base + product->x_offset, extent->x_bytes, session) ||
      !inside(session->base + product->y_offset, extent->y_bytes, session))
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct engine_session session = {
      .base = arena, .arena_bytes = ARENA_BYTES, .tensor_offset = ring_tensor_offset(ENTRIES, 1)};
  struct plans plans;
  struct error error;
  plans_init(&plans);
  handles_init(&session.handles);
  for (uint32_t i = 0; i < HANDLES; i++)
    if (handles_add(&session.handles, 1 << 16 | i, &weights[i], &error) != STATUS_OK)
      abort();
  struct input input = good_input(session.tensor_offset);
  for (size_t i = 0; i + 3 <= size; i += 3) {
    ((uint8_t *)&input)[((size_t)data[i] << 8 | data[i + 1]) % sizeof input] = data[i + 2];
    struct gemm_product product;
    struct gemm_extent extent;
    struct engine_plan *plan, *again;
    memcpy(arena + session.tensor_offset, input.steps, sizeof input.steps);
    if (ring_submission_product(&input.submission, &product, &error) != STATUS_OK ||
        input.submission.opcode != RING_OP_PLAN ||
        plans_find(&plans, &session, &input.submission, &product, &extent, &plan, &error) != STATUS_OK)
      continue;
    check(&session, plan, &product, &extent);
    if (plans_find(&plans, &session, &input.submission, &product, &extent, &again, &error) != STATUS_OK ||
        again != plan || plans.count > PLANS_MOST)
      abort();
  }
  plans_forget_weight(&plans, &weights[0]);
  plans_forget_session(&plans, &session);
  plans_close(&plans);
  handles_close(&session.handles);
  return 0;
}
