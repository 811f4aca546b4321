#include "slice.h"

#include "engine.h"
#include "plans.h"

enum { ROWS_LEAST = 64 }; /* fewer would read W too often */

static uint64_t terms_of_row(const struct queue_job *job) {
  const struct engine_weight *weight = job->weight;
  const struct engine_plan *plan = job->plan;
  uint64_t terms = 0;
  for (uint32_t i = 0; plan != NULL && i < plan->count; i++)
    terms += (uint64_t)(plan->weights[i]->shape.n * plan->weights[i]->shape.k);
  return plan != NULL ? terms : (uint64_t)(weight->shape.n * weight->shape.k);
}

int64_t slice_rows(const struct backend_ops *ops, const struct queue_job *job) {
  int64_t m = job->product.m;
  if (ops->slice_terms == 0 || job->product.operand != NULL || m < 2 * ROWS_LEAST)
    return m;
  int64_t rows = (int64_t)(ops->slice_terms / terms_of_row(job)) / ROWS_LEAST * ROWS_LEAST;
  rows = rows > ROWS_LEAST ? rows : ROWS_LEAST;
  return m < rows + ROWS_LEAST ? m : rows; /* a few rows more are sooner done now */
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
