#include "prepare.h"

/* Memory of the client's own in which the product's tensors lie; NULL: in the arena. */
struct places {
  struct engine_tensor *x, *y, *w;
};

/* ---- what handles stand for */

static enum status find_tensor(const struct engine_session *session, uint32_t handle, enum field field,
                               struct engine_tensor **out, uint64_t *bytes, struct error *error) {
  *out = handle != 0 ? handles_find(&session->tensors, handle) : NULL;
  if (handle != 0 && *out == NULL)
    return error_field(error, STATUS_NOT_FOUND, field, handle, 1, 0);
  *bytes = *out != NULL ? (*out)->bytes : 0;
  return STATUS_OK;
}

static enum status find_places(const struct engine_session *session, struct gemm_product *product, struct places *out,
                               struct error *error) {
  enum status status =
      find_tensor(session, product->x_tensor, FIELD_X_TENSOR, &out->x, &product->x_tensor_bytes, error);
  if (status == STATUS_OK)
    status = find_tensor(session, product->y_tensor, FIELD_Y_TENSOR, &out->y, &product->y_tensor_bytes, error);
  if (status == STATUS_OK)
    status = find_tensor(session, product->w_tensor, FIELD_W_TENSOR, &out->w, &product->w_tensor_bytes, error);
  return status;
}

static enum status find_event(const struct engine_session *session, uint32_t handle, struct engine_event **out,
                              struct error *error) {
  *out = handle != 0 ? handles_find(&session->events, handle) : NULL;
  if (handle != 0 && *out == NULL)
    return error_field(error, STATUS_NOT_FOUND, FIELD_EVENT, handle, 1, 0);
  return STATUS_OK;
}

/* ---- by opcode */

static enum status prepare_product(struct engine_session *session, const struct ring_submission *submission,
                                   const struct gemm_product *product, struct gemm_extent *extent,
                                   struct queue_job *job, struct error *error) {
  struct engine_weight *weight = handles_find(&session->handles, submission->weight);
  if (weight == NULL)
    return error_field(error, STATUS_NOT_FOUND, FIELD_WEIGHT, submission->weight, 1, 0);
  enum status status =
      gemm_product_check(product, &weight->shape, session->tensor_offset, session->arena_bytes, extent, error);
  if (status != STATUS_OK)
    return status;
  job->weight = weight;
  weight->jobs++;
  return STATUS_OK;
}

static enum status prepare_plan(struct plans *plans, struct engine_session *session,
                                const struct ring_submission *submission, const struct gemm_product *product,
                                struct gemm_extent *extent, struct queue_job *job, struct error *error) {
  struct engine_plan *plan;
  enum status status = plans_find(plans, session, submission, product, extent, &plan, error);
  if (status != STATUS_OK)
    return status;
  job->plan = plan;
  job->weight = plan->weights[0];
  plan->jobs++;
  for (uint32_t i = 0; i < plan->count; i++)
    plan->weights[i]->jobs++;
  return STATUS_OK;
}

/* W comes with the product: none of the stored ones has a part in it. */
static enum status prepare_tensors(struct engine_session *session, const struct ring_submission *submission,
                                   const struct gemm_product *product, const struct engine_tensor *w,
                                   struct gemm_extent *extent, struct queue_job *job, struct error *error) {
  uint64_t stride = submission->w_stride;
  enum status status = ring_submission_form(submission, &job->operand.form, error);
  if (status == STATUS_OK)
    status = tensors_check(product, &job->operand.form, submission->w_offset, &stride, session->tensor_offset,
                           session->arena_bytes, extent, error);
  if (status == STATUS_OK)
    status = gemm_tensor_weight(product, &job->operand.shape, error);
  job->operand.memory = w != NULL ? w->memory : NULL;
  job->operand.w = (w != NULL ? w->address : session->base) + submission->w_offset;
  job->operand.stride = stride;
  return status;
}

/* ---- all of it */

/* In use until the job is forgotten. */
static void use_places(struct queue_job *job, const struct places *places) {
  struct engine_tensor *const tensors[QUEUE_TENSORS] = {places->x, places->y, places->w};
  for (size_t i = 0; i < QUEUE_TENSORS; i++) {
    job->tensors[i] = tensors[i];
    if (tensors[i] != NULL)
      tensors[i]->jobs++;
  }
}

static void fill(struct queue_job *job, struct engine_session *session, const struct gemm_product *product,
                 const struct gemm_extent *extent, const struct places *places) {
  const struct engine_weight *weight = job->weight;
  const struct engine_plan *plan = job->plan;
  const struct gemm_choice *choice = &product->choice;
  uint8_t *base = session->base, *x_base = places->x != NULL ? places->x->address : base;
  job->experts = (struct backend_experts){
      .ids = (const int32_t *)(const void *)(x_base + choice->ids_offset),
      .routing = choice->routed ? (const float *)(const void *)(x_base + choice->routing_offset) : NULL,
      .top = choice->top,
      .x_pairs = choice->x_pairs,
      .sum = choice->sum};
  job->product = (struct backend_job){
      .tag = (uintptr_t)job,
      .weight = weight != NULL ? weight->device : NULL,
      .operand = weight != NULL ? NULL : &job->operand,
      .arena = session->arena,
      .x_memory = places->x != NULL ? places->x->memory : NULL,
      .y_memory = places->y != NULL ? places->y->memory : NULL,
      .m = product->m,
      .x_type = product->x_type,
      .y_type = product->y_type,
      .bias_type = product->bias_type,
      .x = x_base + product->x_offset,
      .y = (places->y != NULL ? places->y->address : base) + product->y_offset,
      .bias = extent->bias_bytes > 0 ? base + product->bias_offset : NULL,
      .x_scale = extent->x_scale_bytes > 0 ? base + product->x_scale_offset : NULL,
      .x_stride = extent->x_stride,
      .y_stride = extent->y_stride,
      .experts = choice->top > 0 ? &job->experts : NULL,
      .steps = plan != NULL ? plan->steps : NULL,
      .step_count = plan != NULL ? plan->count : 0,
  };
}

enum status prepare_job(struct plans *plans, struct engine_session *session, const struct ring_submission *submission,
                        struct queue_job *job, struct engine_event **event, struct error *error) {
  struct gemm_product product;
  struct gemm_extent extent;
  struct places places = {.x = NULL};
  enum status status = ring_submission_product(submission, &product, error);
  if (status == STATUS_OK)
    status = find_event(session, submission->event, event, error);
  if (status == STATUS_OK)
    status = find_places(session, &product, &places, error);
  if (status == STATUS_OK && submission->opcode != RING_OP_TENSORS &&
      (submission->opcode == RING_OP_PLAN || submission->steps > 0))
    status = prepare_plan(plans, session, submission, &product, &extent, job, error);
  else if (status == STATUS_OK && submission->opcode == RING_OP_TENSORS)
    status = prepare_tensors(session, submission, &product, places.w, &extent, job, error);
  else if (status == STATUS_OK)
    status = prepare_product(session, submission, &product, &extent, job, error);
  if (status != STATUS_OK)
    return status;
  fill(job, session, &product, &extent, &places);
  use_places(job, &places);
  return STATUS_OK;
}
