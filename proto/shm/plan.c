#include "plan.h"

#include <stddef.h>

static int64_t to_signed(uint64_t value) {
  return value > INT64_MAX ? INT64_MAX : (int64_t)value;
}

enum status plan_place_check(uint32_t steps, uint64_t offset, uint64_t begin, uint64_t end, struct error *error) {
  if (steps < 1 || steps > GEMM_STEPS_MOST)
    return error_field(error, STATUS_INVALID, FIELD_STEPS, steps, 1, GEMM_STEPS_MOST);
  uint64_t bytes = steps * sizeof(struct ring_step);
  if (end < bytes || offset < begin || offset > end - bytes)
    return error_field(error, STATUS_INVALID, FIELD_PLAN_OFFSET, to_signed(offset), to_signed(begin),
                       to_signed(end < bytes ? 0 : end - bytes));
  if (offset % RING_STEP_ALIGN != 0)
    return error_field(error, STATUS_INVALID, FIELD_PLAN_OFFSET, to_signed(offset), RING_STEP_ALIGN, 0);
  return STATUS_OK;
}

enum status plan_step_read(const struct ring_step *from, const struct gemm_weight *weight, struct plan_step *out,
                           struct error *error) {
  if (from->n != weight->n)
    return error_field(error, STATUS_INVALID, FIELD_N, from->n, weight->n, weight->n);
  if (from->k != weight->k)
    return error_field(error, STATUS_INVALID, FIELD_K, from->k, weight->k, weight->k);
  if (from->activation > GEMM_SWIGLU_CLAMPED)
    return error_field(error, STATUS_INVALID, FIELD_ACTIVATION, from->activation, GEMM_ACTIVATION_NONE,
                       GEMM_SWIGLU_CLAMPED);
  if (from->gated > 1)
    return error_field(error, STATUS_INVALID, FIELD_GATED, from->gated, 0, 1);
  for (size_t i = 0; i < sizeof from->reserved; i++)
    if (from->reserved[i] != 0)
      return error_field(error, STATUS_INVALID, FIELD_RESERVED, 1, 0, 0);
  *out = (struct plan_step){.weight = *weight,
                            .activation = (enum gemm_activation)from->activation,
                            .gated = from->gated,
                            .y_type = (enum gemm_type)from->y_type,
                            .bias_type = (enum gemm_type)from->bias_type,
                            .bias_offset = from->bias_offset};
  return STATUS_OK;
}

int64_t plan_step_columns(const struct plan_step *step) {
  return step->gated ? step->weight.n / 2 : step->weight.n;
}

static bool is_real(enum gemm_type type) {
  return type == GEMM_F32 || type == GEMM_F16 || type == GEMM_BF16;
}

static enum status type_error(struct error *error, enum field field, enum gemm_type type) {
  (void)error_field(error, STATUS_UNSUPPORTED, field, type, 1, 0);
  gemm_error_compose(error);
  return error->status;
}

static uint64_t bias_bytes(const struct plan_step *step) {
  return (uint64_t)(step->weight.n * gemm_matrices(&step->weight)) * gemm_type_bytes(step->bias_type);
}

static enum status check_bias(const struct plan_step *step, uint64_t begin, uint64_t end, struct error *error) {
  if (step->bias_type == GEMM_TYPE_NONE)
    return STATUS_OK;
  if (!is_real(step->bias_type))
    return type_error(error, FIELD_BIAS_TYPE, step->bias_type);
  uint64_t bytes = bias_bytes(step);
  if (end < bytes || step->bias_offset < begin || step->bias_offset > end - bytes)
    return error_field(error, STATUS_INVALID, FIELD_BIAS_OFFSET, to_signed(step->bias_offset), to_signed(begin),
                       to_signed(end < bytes ? 0 : end - bytes));
  if (step->bias_offset % GEMM_ALIGN != 0)
    return error_field(error, STATUS_INVALID, FIELD_BIAS_OFFSET, to_signed(step->bias_offset), GEMM_ALIGN, 0);
  return STATUS_OK;
}

/* `before` is NULL for the first step. */
static enum status check_step(const struct plan_step *step, const struct plan_step *before, uint64_t begin,
                              uint64_t end, struct error *error) {
  enum status status = gemm_weight_check(&step->weight, error);
  if (status != STATUS_OK)
    return status;
  if (before != NULL && step->weight.k != plan_step_columns(before))
    return error_field(error, STATUS_INVALID, FIELD_K, step->weight.k, plan_step_columns(before),
                       plan_step_columns(before));
  if (before != NULL && step->weight.experts != before->weight.experts)
    return error_field(error, STATUS_INVALID, FIELD_EXPERTS, step->weight.experts, before->weight.experts,
                       before->weight.experts);
  if (before != NULL && !gemm_takes_x(step->weight.format, before->y_type))
    return type_error(error, FIELD_X_TYPE, before->y_type);
  if (!is_real(step->y_type))
    return type_error(error, FIELD_Y_TYPE, step->y_type);
  if (step->activation == GEMM_SWIGLU_CLAMPED && !step->gated)
    return error_field(error, STATUS_INVALID, FIELD_GATED, 0, 1, 1);
  if (step->gated && step->weight.n % 2 != 0)
    return error_field(error, STATUS_INVALID, FIELD_N, step->weight.n, 2, 0);
  return check_bias(step, begin, end, error);
}

enum status plan_check(const struct plan_step *steps, uint32_t count, uint64_t begin, uint64_t end, uint32_t *bad,
                       struct error *error) {
  for (*bad = 0; *bad < count; ++*bad) {
    enum status status = check_step(&steps[*bad], *bad > 0 ? &steps[*bad - 1] : NULL, begin, end, error);
    if (status != STATUS_OK)
      return status;
  }
  return STATUS_OK;
}

enum status plan_call_check(const struct plan_step *steps, uint32_t count, const struct gemm_product *call,
                            uint64_t begin, uint64_t end, struct gemm_extent *out, struct error *error) {
  const struct plan_step *last = &steps[count - 1];
  struct gemm_weight whole = steps[0].weight;
  whole.n = plan_step_columns(last);
  if (call->bias_type != GEMM_TYPE_NONE)
    return type_error(error, FIELD_BIAS_TYPE, call->bias_type);
  if (call->y_type != last->y_type)
    return type_error(error, FIELD_Y_TYPE, call->y_type);
  enum status status = gemm_product_check(call, &whole, begin, end, out, error);
  for (uint32_t i = 0; status == STATUS_OK && i < count; i++)
    if (call->y_tensor == 0 && bias_bytes(&steps[i]) > 0 && steps[i].bias_offset < call->y_offset + out->y_bytes &&
        call->y_offset < steps[i].bias_offset + bias_bytes(&steps[i])) {
      (void)error_field(error, STATUS_INVALID, FIELD_Y_OFFSET, to_signed(call->y_offset), 1, 0);
      gemm_error_compose(error);
      return error->status;
    }
  return status;
}
