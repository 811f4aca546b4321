/* What kernels are tuned with: tensors, and the look at what comes out. */
#include "trial.h"

#include "../../kernels/operands.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 256 }; /* elements that are compared at a time */

/* ---- tensors */

/* Rows of `columns` elements on the device; those of a kind are alike. */
static enum status rows_take(struct trial *trial, int64_t rows, int64_t columns, enum gemm_type type, void **out,
                             struct error *error) {
  const struct backend_ops *ops = trial->direct->ops;
  uint64_t row_bytes = (uint64_t)columns * gemm_type_bytes(type), bytes = (uint64_t)rows * row_bytes;
  uint8_t *host = malloc(bytes);
  if (host == NULL)
    return error_set(error, STATUS_NOMEM, "no memory to tune with");
  for (int64_t i = 0; i < rows && i < OPERANDS_KINDS; i++)
    for (int64_t j = 0; j < columns; j++)
      operands_put(host + (uint64_t)i * row_bytes, j, type, operands_value((int)i, (uint64_t)(i * columns + j)));
  for (int64_t i = OPERANDS_KINDS; i < rows; i++)
    memcpy(host + (uint64_t)i * row_bytes, host + (uint64_t)(i % OPERANDS_KINDS) * row_bytes, row_bytes);
  enum status status = ops->tensor_take(trial->direct->backend, bytes, out, error);
  if (status == STATUS_OK)
    status = ops->tensor_copy(trial->direct->backend, *out, host, bytes, error);
  free(host);
  return status;
}

static enum status scales_take(struct trial *trial, const struct gemm_weight *weight, struct error *error) {
  const struct backend_ops *ops = trial->direct->ops;
  uint64_t count = (uint64_t)trial->job.m * gemm_x_scale_columns(weight);
  float *host = malloc(count * sizeof *host);
  if (host == NULL)
    return error_set(error, STATUS_NOMEM, "no memory to tune with");
  for (uint64_t i = 0; i < count; i++)
    host[i] = 1.0f / 32;
  enum status status = ops->tensor_take(trial->direct->backend, count * sizeof *host, &trial->x_scale, error);
  if (status == STATUS_OK)
    status = ops->tensor_copy(trial->direct->backend, trial->x_scale, host, count * sizeof *host, error);
  free(host);
  return status;
}

static enum status tensors_take(struct trial *trial, const struct variant_problem *problem, struct error *error) {
  const struct gemm_weight *weight = &problem->weight;
  bool codes = problem->x_type == GEMM_INT8 || problem->x_type == GEMM_E4M3;
  enum status status = rows_take(trial, trial->job.m, weight->k, problem->x_type, &trial->x, error);
  if (status == STATUS_OK && problem->bias_type != GEMM_TYPE_NONE)
    status = rows_take(trial, 1, weight->n, problem->bias_type, &trial->bias, error);
  if (status == STATUS_OK && codes && problem->y_type != GEMM_S32)
    status = scales_take(trial, weight, error);
  if (status == STATUS_OK)
    status = trial->direct->ops->tensor_take(trial->direct->backend, trial->y_bytes, &trial->y, error);
  return status;
}

/* ---- computing */

/* y of one product, to the host. */
static enum status compute(struct trial *trial, const struct variant *variant, uint8_t *y, struct error *error) {
  const struct backend_ops *ops = trial->direct->ops;
  const struct backend_timing timing = {.launches = 1, .quantize = true, .dependent = true, .lane = trial->lane};
  struct backend_job job = trial->job;
  uint64_t ns;
  job.variant = variant;
  memset(y, 0xff, trial->y_bytes); /* NaN, or -1: what is not written is wrong */
  enum status status = ops->tensor_copy(trial->direct->backend, trial->y, y, trial->y_bytes, error);
  if (status == STATUS_OK)
    status = ops->measure(trial->direct->backend, &job, &trial->weight, 1, &timing, &ns, error);
  if (status == STATUS_OK)
    status = ops->tensor_copy(trial->direct->backend, y, trial->y, trial->y_bytes, error);
  return status;
}

enum status trial_open(struct trial *trial, struct gemmd_direct_weight *weight, const struct variant_problem *problem,
                       int64_t m, int lane, struct error *error) {
  uint64_t row_bytes = (uint64_t)problem->weight.n * gemm_type_bytes(problem->y_type);
  *trial = (struct trial){.direct = weight->direct,
                          .weight = weight->handle,
                          .lane = lane,
                          .y_row_bytes = row_bytes,
                          .y_bytes = row_bytes * (uint64_t)m};
  trial->job.m = m;
  trial->is = malloc(trial->y_bytes);
  trial->should = malloc(trial->y_bytes);
  if (trial->is == NULL || trial->should == NULL)
    return error_set(error, STATUS_NOMEM, "no memory to tune with");
  enum status status = tensors_take(trial, problem, error);
  if (status != STATUS_OK)
    return status;
  trial->job = (struct backend_job){.weight = weight->handle,
                                    .m = m,
                                    .x_type = problem->x_type,
                                    .y_type = problem->y_type,
                                    .bias_type = problem->bias_type,
                                    .x = trial->x,
                                    .y = trial->y,
                                    .bias = trial->bias,
                                    .x_scale = trial->x_scale,
                                    .x_stride = (uint64_t)problem->weight.k * gemm_type_bytes(problem->x_type),
                                    .y_stride = row_bytes};
  return compute(trial, NULL, trial->should, error);
}

void trial_close(struct trial *trial) {
  const struct backend_ops *ops = trial->direct->ops;
  void *const tensors[] = {trial->x, trial->y, trial->bias, trial->x_scale};
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
    ops->tensor_give(trial->direct->backend, tensors[i]);
  free(trial->is);
  free(trial->should);
}

/* ---- comparing */

/* Of two kernels that each keep the contract. */
static double allowed(const struct variant_problem *problem) {
  double sums = gemm_format_facts(problem->weight.format)->sums_error;
  double rounding = problem->y_type == GEMM_BF16 ? 3.9e-3 : problem->y_type == GEMM_F16 ? 5e-4 : 0;
  return problem->y_type == GEMM_S32 ? 0 : 2 * (sums + rounding);
}

/* Sums of squares: of what is off, and of what should be. False where one is no number and not what it should be. */
static bool add_squares(const double *is, const double *should, int count, double *difference, double *norm) {
  for (int i = 0; i < count; i++) {
    if (isfinite(is[i]) && isfinite(should[i])) {
      *difference += (is[i] - should[i]) * (is[i] - should[i]);
      *norm += should[i] * should[i];
    } else if (!(is[i] == should[i])) {
      return false;
    }
  }
  return true;
}

static bool row_right(const struct trial *trial, const struct variant_problem *problem, int64_t row) {
  const uint8_t *is = trial->is + (uint64_t)row * trial->y_row_bytes;
  const uint8_t *should = trial->should + (uint64_t)row * trial->y_row_bytes;
  const uint8_t *first = trial->is + (uint64_t)(row % OPERANDS_KINDS) * trial->y_row_bytes;
  double difference = 0, norm = 0, a[BLOCK], b[BLOCK];
  if (memcmp(is, should, trial->y_row_bytes) == 0 ||
      (row >= OPERANDS_KINDS && memcmp(is, first, trial->y_row_bytes) == 0))
    return true;
  for (int64_t column = 0, n = problem->weight.n; column < n; column += BLOCK) {
    int count = (int)(n - column < BLOCK ? n - column : BLOCK);
    operands_widen(is, column, count, problem->y_type, a);
    operands_widen(should, column, count, problem->y_type, b);
    if (!add_squares(a, b, count, &difference, &norm))
      return false;
  }
  double limit = allowed(problem);
  return difference <= limit * limit * norm;
}

enum status trial_compare(struct trial *trial, const struct variant_problem *problem, const struct variant *variant,
                          bool *right, struct error *error) {
  enum status status = compute(trial, variant, trial->is, error);
  *right = status == STATUS_OK;
  for (int64_t row = 0; row < trial->job.m && *right; row++)
    *right = row_right(trial, problem, row);
  return status;
}
