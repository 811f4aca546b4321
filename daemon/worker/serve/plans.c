#include "plans.h"

#include <stdlib.h>
#include <string.h>

void plans_init(struct plans *plans) {
  TAILQ_INIT(&plans->list);
  plans->count = 0;
}

static void drop(struct plans *plans, struct engine_plan *plan) {
  TAILQ_REMOVE(&plans->list, plan, link);
  plans->count--;
  free(plan);
}

void plans_close(struct plans *plans) {
  while (!TAILQ_EMPTY(&plans->list))
    drop(plans, TAILQ_FIRST(&plans->list));
}

/* ---- reading */

struct reading {
  struct engine_weight *weights[GEMM_STEPS_MOST];
  struct plan_step steps[GEMM_STEPS_MOST];
  uint32_t count;
};

static enum status read_steps(const struct engine_session *session, const struct ring_submission *submission,
                              struct reading *out, struct error *error) {
  struct ring_step copies[GEMM_STEPS_MOST];
  uint32_t bad;
  enum status status =
      plan_place_check(submission->steps, submission->plan_offset, session->tensor_offset, session->arena_bytes, error);
  if (status != STATUS_OK)
    return status;
  out->count = submission->steps;
  memcpy(copies, session->base + submission->plan_offset, out->count * sizeof *copies);
  for (uint32_t i = 0; i < out->count; i++) {
    out->weights[i] = handles_find(&session->handles, copies[i].weight);
    if (out->weights[i] == NULL)
      return error_field(error, STATUS_NOT_FOUND, FIELD_WEIGHT, copies[i].weight, 1, 0);
    status = plan_step_read(&copies[i], &out->weights[i]->shape, &out->steps[i], error);
    if (status != STATUS_OK)
      return status;
  }
  return plan_check(out->steps, out->count, session->tensor_offset, session->arena_bytes, &bad, error);
}

static const void *bias_of(const struct engine_session *session, const struct plan_step *step) {
  return step->bias_type != GEMM_TYPE_NONE ? session->base + step->bias_offset : NULL;
}

/* ---- finding */

static bool same_step(const struct backend_step *have, const struct plan_step *step, const void *bias) {
  return have->activation == step->activation && have->gated == step->gated && have->y_type == step->y_type &&
         have->bias_type == step->bias_type && have->bias == bias;
}

static bool same(const struct engine_plan *plan, const struct engine_session *session, const struct reading *reading) {
  if (plan->count != reading->count || (plan->session != NULL && plan->session != session))
    return false;
  for (uint32_t i = 0; i < plan->count; i++)
    if (plan->weights[i] != reading->weights[i] ||
        !same_step(&plan->steps[i], &reading->steps[i], bias_of(session, &reading->steps[i])))
      return false;
  return true;
}

/* Room for one more. */
static bool evict(struct plans *plans) {
  struct engine_plan *plan = NULL;
  if (plans->count < PLANS_MOST)
    return true;
  TAILQ_FOREACH_REVERSE(plan, &plans->list, plan_list, link) {
    if (plan->jobs == 0) {
      drop(plans, plan);
      return true;
    }
  }
  return false;
}

static enum status make(struct plans *plans, struct engine_session *session, const struct reading *reading,
                        struct engine_plan **out, struct error *error) {
  struct engine_plan *plan = calloc(1, sizeof *plan);
  if (plan == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for a plan");
  plan->count = reading->count;
  for (uint32_t i = 0; i < plan->count; i++) {
    const struct plan_step *step = &reading->steps[i];
    plan->weights[i] = reading->weights[i];
    plan->steps[i] = (struct backend_step){.weight = reading->weights[i]->device,
                                           .y_type = step->y_type,
                                           .bias_type = step->bias_type,
                                           .bias = bias_of(session, step),
                                           .activation = step->activation,
                                           .gated = step->gated};
    if (plan->steps[i].bias != NULL)
      plan->session = session;
  }
  plan->kept = evict(plans);
  if (plan->kept) {
    TAILQ_INSERT_HEAD(&plans->list, plan, link);
    plans->count++;
  }
  *out = plan;
  return STATUS_OK;
}

void plans_release(struct engine_plan *plan) {
  if (--plan->jobs == 0 && !plan->kept)
    free(plan);
}

enum status plans_find(struct plans *plans, struct engine_session *session, const struct ring_submission *submission,
                       const struct gemm_product *product, struct gemm_extent *extent, struct engine_plan **out,
                       struct error *error) {
  struct reading reading;
  struct engine_plan *plan = NULL;
  enum status status = read_steps(session, submission, &reading, error);
  if (status == STATUS_OK)
    status = plan_call_check(reading.steps, reading.count, product, session->tensor_offset, session->arena_bytes,
                             extent, error);
  if (status != STATUS_OK)
    return status;
  TAILQ_FOREACH (plan, &plans->list, link) {
    if (same(plan, session, &reading))
      break;
  }
  if (plan == NULL)
    return make(plans, session, &reading, out, error);
  TAILQ_REMOVE(&plans->list, plan, link);
  TAILQ_INSERT_HEAD(&plans->list, plan, link);
  *out = plan;
  return STATUS_OK;
}

/* ---- forgetting */

static bool uses(const struct engine_plan *plan, const struct engine_weight *weight) {
  for (uint32_t i = 0; i < plan->count; i++)
    if (plan->weights[i] == weight)
      return true;
  return false;
}

void plans_forget_weight(struct plans *plans, const struct engine_weight *weight) {
  struct engine_plan *plan = TAILQ_FIRST(&plans->list);
  while (plan != NULL) {
    struct engine_plan *next = TAILQ_NEXT(plan, link);
    if (uses(plan, weight))
      drop(plans, plan);
    plan = next;
  }
}

void plans_forget_session(struct plans *plans, const struct engine_session *session) {
  struct engine_plan *plan = TAILQ_FIRST(&plans->list);
  while (plan != NULL) {
    struct engine_plan *next = TAILQ_NEXT(plan, link);
    if (plan->session == session)
      drop(plans, plan);
    plan = next;
  }
}
