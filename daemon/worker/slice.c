#include "slice.h"

#include "engine.h"
#include "plans.h"

/* Fewer would read W too often; one that comes with its product is laid out anew each time, which takes as long as a
 * hundred rows. */
enum { ROWS_LEAST = 64, TENSOR_ROWS_LEAST = 1024 };

static uint64_t terms_of_row(const struct queue_job *job) {
  const struct engine_weight *weight = job->weight;
  const struct engine_plan *plan = job->plan;
  const struct backend_operand *operand = job->product.operand;
  uint64_t terms = 0;
  if (operand != NULL)
    return (uint64_t)(operand->shape.n * operand->shape.k);
  for (uint32_t i = 0; plan != NULL && i < plan->count; i++)
    terms += (uint64_t)(plan->weights[i]->shape.n * plan->weights[i]->shape.k);
  return plan != NULL ? terms : (uint64_t)(weight->shape.n * weight->shape.k);
}

int64_t slice_rows(const struct backend_ops *ops, const struct queue_job *job) {
  int64_t m = job->product.m, least = job->product.operand != NULL ? TENSOR_ROWS_LEAST : ROWS_LEAST;
  if (ops->slice_terms == 0 || m < 2 * least)
    return m;
  int64_t rows = (int64_t)(ops->slice_terms / terms_of_row(job)) / least * least;
  rows = rows > least ? rows : least;
  return m < rows + least ? m : rows; /* a few rows more are sooner done now */
}

static void move_on(struct backend_job *product, const struct queue_job *job, int64_t rows) {
  const struct engine_plan *plan = job->plan;
  const struct engine_weight *first = plan != NULL ? plan->weights[0] : job->weight;
  product->x = (const uint8_t *)product->x + (uint64_t)rows * product->x_stride;
  product->y = (uint8_t *)product->y + (uint64_t)rows * product->y_stride;
  if (product->x_scale != NULL)
    product->x_scale = (const float *)product->x_scale + (uint64_t)rows * gemm_x_scale_columns(&first->shape);
}

enum status slice_run(const struct backend_ops *ops, struct backend *backend, struct queue_job *job, int64_t rows,
                      struct backend_done *done, struct error *error) {
  struct backend_job slice = job->product;
  slice.m = rows;
  slice.next = NULL;
  enum status status = ops->submit(backend, &slice, error);
  if (status != STATUS_OK)
    return status;
  while (ops->poll(backend, done, 1) == 0)
    ;
  if (done->status != STATUS_OK)
    return error_set(error, done->status, "rows %lld to %lld ended with %s", (long long)job->rows_done,
                     (long long)(job->rows_done + rows - 1), status_name(done->status));
  move_on(&job->product, job, rows);
  return STATUS_OK;
}
