#include "job.h"

#include "../state.h"

/* All steps have as many experts, of which each row takes some. */
static enum status experts_check(const struct backend_job *job, struct error *error) {
  int64_t experts = job->weight->weight.experts, top = job->experts->top;
  if (top < 1 || top > experts)
    return error_field(error, STATUS_INVALID, FIELD_TOP, top, 1, experts);
  for (uint32_t i = 0; i < job->step_count; i++) {
    int64_t here = job->steps[i].weight->weight.experts;
    if (here != experts)
      return error_field(error, STATUS_INVALID, FIELD_EXPERTS, here, experts, experts);
  }
  if (gemm_type_bytes(job->x_type) == 1)
    return error_field(error, STATUS_UNSUPPORTED, FIELD_X_TYPE, job->x_type, 1, 0);
  return STATUS_OK;
}

enum status job_types_check(const struct backend_job *job, struct error *error) {
  const struct gemm_weight *weight = job->operand ? &job->operand->shape : &job->weight->weight;
  if ((weight->experts > 0) != (job->experts != NULL))
    return error_set(error, STATUS_INVALID, "ids belong to a weight with experts, and to such a weight alone");
  if (job->experts) {
    enum status status = experts_check(job, error);
    if (status != STATUS_OK)
      return status;
  }
  if (!gemm_takes_x(weight->format, job->x_type))
    return error_field(error, STATUS_UNSUPPORTED, FIELD_X_TYPE, job->x_type, 1, 0);
  if (!job->steps && !gemm_takes_y(weight->format, job->x_type, job->y_type))
    return error_field(error, STATUS_UNSUPPORTED, FIELD_Y_TYPE, job->y_type, 1, 0);
  for (uint32_t i = 1; i < job->step_count; i++)
    if (!gemm_takes_x(job->steps[i].weight->weight.format, job->steps[i - 1].y_type))
      return error_field(error, STATUS_UNSUPPORTED, FIELD_X_TYPE, job->steps[i - 1].y_type, 1, 0);
  bool codes = job->x_type == GEMM_INT8 || job->x_type == GEMM_E4M3;
  if (codes && job->y_type != GEMM_S32 && !job->x_scale)
    return error_set(error, STATUS_INVALID, "x of type %s needs scales", gemm_type_name(job->x_type));
  return STATUS_OK;
}

enum status job_check(const struct backend_job *job, struct error *error) {
  return job->m < 1 ? error_field(error, STATUS_INVALID, FIELD_M, job->m, 1, INT64_MAX) : job_types_check(job, error);
}
