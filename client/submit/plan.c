/* Plans: descriptions in the arena, one for each device that has all the weights. */
#include "plan.h"
#include "../memory/arena.h"
#include "../weight/handle.h"

#include <stdlib.h>

static bool whole_on(const struct gemmd_weight *weight, uint32_t device, uint32_t *handle) {
  for (uint32_t i = 0; i < weight->part_count; i++) {
    *handle = weight->parts[i].handle;
    if (weight->parts[i].device == device && weight->parts[i].n_count == weight->shape.n)
      return true;
  }
  return false;
}

static bool all_on(const gemmd_step *steps, unsigned count, uint32_t device) {
  uint32_t handle;
  for (unsigned i = 0; i < count; i++)
    if (!whole_on(steps[i].weight, device, &handle))
      return false;
  return true;
}

/* What the worker will copy and check, too. */
static struct ring_step describe(const struct gemmd_plan *plan, const gemmd_step *steps, uint32_t i, uint32_t device) {
  const struct plan_step *step = &plan->steps[i];
  struct ring_step out = {.activation = (uint8_t)step->activation,
                          .gated = step->gated,
                          .y_type = (uint8_t)step->y_type,
                          .bias_type = (uint8_t)step->bias_type,
                          .n = (uint32_t)step->weight.n,
                          .k = (uint32_t)step->weight.k,
                          .bias_offset = step->bias_offset};
  (void)whole_on(steps[i].weight, device, &out.weight);
  return out;
}

static enum status place(struct gemmd_plan *plan, const gemmd_step *steps, uint32_t device) {
  struct ring_step *description = gemmd_alloc(plan->session, plan->count * sizeof *description);
  if (description == NULL)
    return STATUS_NOMEM;
  for (uint32_t i = 0; i < plan->count; i++)
    description[i] = describe(plan, steps, i, device);
  plan->descriptions[plan->place_count] = description;
  plan->places[plan->place_count++] =
      (struct pending_part){.device = device, .n_count = (uint32_t)plan_step_columns(&plan->steps[plan->count - 1])};
  return STATUS_OK;
}

static enum status place_all(struct gemmd_plan *plan, const gemmd_step *steps) {
  const struct gemmd_weight *first = steps[0].weight;
  enum status status = STATUS_OK;
  for (uint32_t i = 0; status == STATUS_OK && i < first->part_count; i++)
    if (all_on(steps, plan->count, first->parts[i].device))
      status = place(plan, steps, first->parts[i].device);
  if (status == STATUS_OK && plan->place_count == 0)
    return error_set(&plan->session->error, STATUS_UNSUPPORTED, "no device holds all weights of the plan whole");
  return status;
}

static enum status translate_step(struct gemmd_plan *plan, const gemmd_step *from) {
  struct gemmd_session *session = plan->session;
  struct plan_step *step = &plan->steps[plan->count];
  if (from->weight == NULL || from->weight->session != session)
    return error_set(&session->error, STATUS_INVALID, "weight must be one that this session has open");
  if ((unsigned)from->activation > GEMM_SWIGLU_CLAMPED)
    return error_field(&session->error, STATUS_INVALID, FIELD_ACTIVATION, (int64_t)from->activation, 0,
                       GEMM_SWIGLU_CLAMPED);
  *step = (struct plan_step){.weight = from->weight->shape,
                             .activation = (enum gemm_activation)from->activation,
                             .gated = from->gated,
                             .y_type = (enum gemm_type)from->y_type};
  plan->count++;
  if (from->bias == NULL)
    return STATUS_OK;
  step->bias_type = (enum gemm_type)from->bias_type;
  if (step->bias_type == GEMM_TYPE_NONE)
    return error_set(&session->error, STATUS_INVALID, "bias type must be that of bias, got none");
  return arena_offset(session, from->bias, "bias", &step->bias_offset);
}

static enum status build(struct gemmd_plan *plan, const gemmd_step *steps, unsigned count) {
  struct gemmd_session *session = plan->session;
  enum status status = STATUS_OK;
  uint32_t bad = 0;
  if (count < 1 || count > GEMM_STEPS_MOST)
    return error_field(&session->error, STATUS_INVALID, FIELD_STEPS, count, 1, GEMM_STEPS_MOST);
  for (; status == STATUS_OK && bad < count; bad += status == STATUS_OK)
    status = translate_step(plan, &steps[bad]);
  if (status == STATUS_OK)
    status = plan_check(plan->steps, plan->count, session->tensor_offset, session->arena_bytes, &bad, &session->error);
  if (status != STATUS_OK)
    return error_set(&session->error, status, "step %u: %.200s", bad, session->error.text);
  return place_all(plan, steps);
}

static void release(struct gemmd_plan *plan) {
  for (uint32_t i = 0; i < plan->place_count; i++)
    gemmd_free(plan->session, plan->descriptions[i]);
  free(plan);
}

int gemmd_plan_create(gemmd_session *session, const gemmd_step *steps, unsigned count, gemmd_plan **out) {
  *out = NULL;
  struct gemmd_plan *plan = calloc(1, sizeof *plan);
  if (plan == NULL)
    return session_result(error_set(&session->error, STATUS_NOMEM, "no memory for a plan"));
  plan->session = session;
  enum status status = build(plan, steps, count);
  if (status != STATUS_OK) {
    release(plan);
    return session_result(status);
  }
  LIST_INSERT_HEAD(&session->plans, plan, link);
  *out = plan;
  return GEMMD_OK;
}

void plan_forget(struct gemmd_plan *plan) {
  LIST_REMOVE(plan, link);
  release(plan);
}

void gemmd_plan_free(gemmd_plan *plan) {
  if (plan != NULL)
    plan_forget(plan);
}

void plans_rename_handles(struct gemmd_session *session) {
  struct gemmd_plan *plan;
  LIST_FOREACH (plan, &session->plans, link)
    for (uint32_t i = 0; i < plan->place_count; i++)
      for (uint32_t j = 0; j < plan->count; j++) {
        struct ring_step *step = &plan->descriptions[i][j];
        step->weight = weight_next_handle(session, plan->places[i].device, step->weight);
      }
}
