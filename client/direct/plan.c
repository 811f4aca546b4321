/* Plans: checked once, run as one job of several steps. */
#include "plan.h"
#include "error.h"
#include "product.h"
#include "tuned.h"

#include <stdlib.h>

struct gemmd_direct_plan {
  struct gemmd_direct *direct;
  LIST_ENTRY(gemmd_direct_plan) link;
  struct gemm_weight whole; /* K of x, columns of y */
  uint32_t count;
  struct gemmd_direct_weight *weights[GEMM_STEPS_MOST];
  struct backend_step steps[GEMM_STEPS_MOST];
};

static enum status step_add(struct gemmd_direct_plan *plan, const gemmd_direct_step *from, struct plan_step *check,
                            struct error *error) {
  if (from->weight == NULL || (plan->direct != NULL && from->weight->direct != plan->direct))
    return error_set(error, STATUS_INVALID, "weight must be one that was borrowed for the device of the first");
  if ((unsigned)from->activation > GEMM_SWIGLU_CLAMPED)
    return error_field(error, STATUS_INVALID, FIELD_ACTIVATION, (int64_t)from->activation, 0, GEMM_SWIGLU_CLAMPED);
  if (from->bias != NULL && from->bias_type == GEMMD_TYPE_NONE)
    return error_set(error, STATUS_INVALID, "bias type must be that of bias, got none");
  enum gemm_type bias_type = from->bias != NULL ? (enum gemm_type)from->bias_type : GEMM_TYPE_NONE;
  plan->direct = from->weight->direct;
  plan->weights[plan->count] = from->weight;
  plan->steps[plan->count++] = (struct backend_step){.weight = from->weight->handle,
                                                     .y_type = (enum gemm_type)from->y_type,
                                                     .bias_type = bias_type,
                                                     .bias = from->bias,
                                                     .activation = (enum gemm_activation)from->activation,
                                                     .gated = from->gated};
  *check = (struct plan_step){.weight = from->weight->shape,
                              .activation = (enum gemm_activation)from->activation,
                              .gated = from->gated,
                              .y_type = (enum gemm_type)from->y_type,
                              .bias_type = bias_type,
                              .bias_offset = (uint64_t)(uintptr_t)from->bias};
  return STATUS_OK;
}

static enum status build(struct gemmd_direct_plan *plan, const gemmd_direct_step *steps, unsigned count,
                         struct error *error) {
  struct plan_step checks[GEMM_STEPS_MOST];
  uint32_t bad = 0;
  enum status status = STATUS_OK;
  if (count < 1 || count > GEMM_STEPS_MOST)
    return error_field(error, STATUS_INVALID, FIELD_STEPS, count, 1, GEMM_STEPS_MOST);
  for (; status == STATUS_OK && bad < count; bad += status == STATUS_OK)
    status = step_add(plan, &steps[bad], &checks[bad], error);
  if (status == STATUS_OK)
    status = plan_check(checks, count, 0, UINT64_MAX, &bad, error);
  if (status != STATUS_OK) {
    struct error why = *error;
    return error_set(error, status, "step %u: %.200s", bad, why.text);
  }
  plan->whole = checks[0].weight;
  plan->whole.n = plan_step_columns(&checks[count - 1]);
  return status;
}

static void plan_link(struct gemmd_direct_plan *plan) {
  struct gemmd_direct *direct = plan->direct;
  pthread_mutex_lock(&direct->lock);
  LIST_INSERT_HEAD(&direct->plans, plan, link);
  for (uint32_t i = 0; i < plan->count; i++)
    plan->weights[i]->plans++;
  pthread_mutex_unlock(&direct->lock);
}

int gemmd_direct_plan_create(const gemmd_direct_step *steps, unsigned count, gemmd_direct_plan **out) {
  struct error error = {0};
  *out = NULL;
  struct gemmd_direct_plan *plan = calloc(1, sizeof *plan);
  if (plan == NULL)
    return direct_result(error_set(&error, STATUS_NOMEM, "no memory for a plan"), &error);
  enum status status = build(plan, steps, count, &error);
  if (status != STATUS_OK) {
    free(plan);
    return direct_result(status, &error);
  }
  plan_link(plan);
  *out = plan;
  return GEMMD_OK;
}

void plan_release(struct gemmd_direct_plan *plan) {
  struct gemmd_direct *direct = plan->direct;
  pthread_mutex_lock(&direct->lock);
  LIST_REMOVE(plan, link);
  for (uint32_t i = 0; i < plan->count; i++)
    plan->weights[i]->plans--;
  pthread_mutex_unlock(&direct->lock);
  free(plan);
}

void gemmd_direct_plan_free(gemmd_direct_plan *plan) {
  if (plan != NULL)
    plan_release(plan);
}

static enum status run_job(const struct gemmd_direct_plan *plan, const gemmd_direct_product *product,
                           const gemmd_direct_experts *experts, struct backend_experts *chosen, struct backend_job *job,
                           struct error *error) {
  const struct backend_step *last = &plan->steps[plan->count - 1];
  enum status status = product_job(plan->direct, product, experts, &plan->whole, chosen, job, error);
  if (status != STATUS_OK)
    return status;
  if (product->bias != NULL || product->kernel != NULL)
    return error_set(error, STATUS_INVALID, "%s must be NULL: steps of a plan have their own",
                     product->bias != NULL ? "bias" : "kernel");
  if (job->y_type != last->y_type)
    return error_set(error, STATUS_INVALID, "y type must be that of the plan's last step, %s, got %s",
                     gemm_type_name(last->y_type), gemm_type_name(job->y_type));
  job->weight = plan->steps[0].weight;
  job->step_count = plan->count;
  return STATUS_OK;
}

/* With the kernels that were found for so many rows; experts have the backend's own choice. */
static void choose(const struct gemmd_direct_plan *plan, struct backend_job *job,
                   struct backend_step steps[GEMM_STEPS_MOST]) {
  enum gemm_type x_type = job->x_type;
  for (uint32_t i = 0; i < plan->count; i++) {
    steps[i] = plan->steps[i];
    if (job->experts == NULL)
      steps[i].variant = tuned_find(plan->weights[i], job->m, x_type, steps[i].y_type, steps[i].bias_type);
    x_type = steps[i].y_type;
  }
  job->steps = steps;
}

static int run(const struct gemmd_direct_plan *plan, const gemmd_direct_product *product,
               const gemmd_direct_experts *experts, void *stream) {
  struct gemmd_direct *direct = plan->direct;
  struct backend_experts chosen;
  struct backend_step steps[GEMM_STEPS_MOST];
  struct backend_job job;
  struct error error;
  enum status status = run_job(plan, product, experts, &chosen, &job, &error);
  if (status == STATUS_OK) {
    choose(plan, &job, steps);
    tuned_computes(plan->weights[0]);
    status = direct->ops->enqueue(direct->backend, product->lane, &job, stream, &error);
  }
  return direct_result(status, &error);
}

int gemmd_direct_run(gemmd_direct_plan *plan, const gemmd_direct_product *product, void *stream) {
  return run(plan, product, NULL, stream);
}

int gemmd_direct_experts_run(gemmd_direct_plan *plan, const gemmd_direct_product *product,
                             const gemmd_direct_experts *experts, void *stream) {
  return run(plan, product, experts, stream);
}
