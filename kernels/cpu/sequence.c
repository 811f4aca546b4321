#include "sequence.h"

#include "activate.h"
#include "weight.h"

#include <inttypes.h>
#include <stdlib.h>

enum { ROWS_AT_ONCE = 512 };

static int64_t step_columns(const struct backend_step *step) {
  return step->gated ? step->weight->shape.n / 2 : step->weight->shape.n;
}

int64_t cpu_job_columns(const struct backend_job *job) {
  return job->steps != NULL ? step_columns(&job->steps[job->step_count - 1]) : job->weight->shape.n;
}

static bool activates(const struct backend_step *step) {
  return step->gated || step->activation != GEMM_ACTIVATION_NONE;
}

/* Two places for so many rows of the widest product: v, which a step makes, and x, which the next one reads. */
static enum status reserve(struct sequence *sequence, const struct backend_job *job, int64_t rows, uint64_t *half,
                           struct error *error) {
  *half = 0;
  for (uint32_t i = 0; i < job->step_count; i++) {
    const struct backend_step *step = &job->steps[i];
    uint64_t bytes = (uint64_t)(rows * step->weight->shape.n) * gemm_type_bytes(step->y_type);
    *half = bytes > *half ? bytes : *half;
  }
  *half = gemm_round_up(*half, GEMM_SECTION);
  if (2 * *half <= sequence->bytes)
    return STATUS_OK;
  void *memory = aligned_alloc(GEMM_SECTION, 2 * *half);
  if (memory == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for %" PRIu64 " bytes between products", 2 * *half);
  free(sequence->memory);
  *sequence = (struct sequence){.memory = memory, .bytes = 2 * *half};
  return STATUS_OK;
}

static enum status check_types(const struct backend_job *job, struct error *error) {
  for (uint32_t i = 1; i < job->step_count; i++)
    if (!gemm_takes_x(job->steps[i].weight->shape.format, job->steps[i - 1].y_type))
      return error_field(error, STATUS_UNSUPPORTED, FIELD_X_TYPE, job->steps[i - 1].y_type, 1, 0);
  return STATUS_OK;
}

/* A run of rows on its way: as the next step reads it, and where it ends. */
struct rows {
  struct backend_job x;
  uint8_t *y, *between, *v;
};

static struct backend_job step_job(const struct backend_step *step, const struct rows *rows) {
  struct backend_job out = rows->x;
  out.weight = step->weight;
  out.y_type = step->y_type;
  out.bias = step->bias;
  out.bias_type = step->bias_type;
  out.variant = step->variant;
  out.steps = NULL;
  out.y = rows->v;
  out.y_stride = (uint64_t)step->weight->shape.n * gemm_type_bytes(step->y_type);
  return out;
}

static enum status step_run(const struct sequence_device *device, const struct backend_step *step, bool last,
                            struct rows *rows, uint64_t y_stride, struct error *error) {
  struct backend_job one = step_job(step, rows);
  if (last && !activates(step)) {
    one.y = rows->y;
    one.y_stride = y_stride;
    return device->run(device->backend, &one, error);
  }
  enum status status = device->run(device->backend, &one, error);
  if (status != STATUS_OK)
    return status;
  struct activate_task task = {.v = rows->v,
                               .out = last ? rows->y : rows->between,
                               .rows = rows->x.m,
                               .columns = step_columns(step),
                               .type = step->y_type,
                               .activation = step->activation,
                               .gated = step->gated};
  task.out_stride = last ? y_stride : (uint64_t)task.columns * gemm_type_bytes(task.type);
  cpu_activate(device->pool, &task);
  rows->x.x = rows->between;
  rows->x.x_type = step->y_type;
  rows->x.x_stride = task.out_stride;
  rows->x.x_scale = NULL;
  return STATUS_OK;
}

enum status cpu_sequence_run(struct sequence *sequence, const struct sequence_device *device,
                             const struct backend_job *job, struct error *error) {
  uint64_t half = 0;
  int64_t rows_most = job->m < ROWS_AT_ONCE ? job->m : ROWS_AT_ONCE;
  enum status status = check_types(job, error);
  if (status == STATUS_OK)
    status = reserve(sequence, job, rows_most, &half, error);
  uint64_t scale_columns = gemm_x_scale_columns(&job->weight->shape);
  for (int64_t row = 0; status == STATUS_OK && row < job->m; row += rows_most) {
    struct rows rows = {.x = *job, .y = (uint8_t *)job->y + (uint64_t)row * job->y_stride};
    rows.between = sequence->memory;
    rows.v = rows.between + half;
    rows.x.m = job->m - row < rows_most ? job->m - row : rows_most;
    rows.x.x = (const uint8_t *)job->x + (uint64_t)row * job->x_stride;
    rows.x.x_scale = job->x_scale != NULL ? (const float *)job->x_scale + (uint64_t)row * scale_columns : NULL;
    for (uint32_t i = 0; status == STATUS_OK && i < job->step_count; i++)
      status = step_run(device, &job->steps[i], i + 1 == job->step_count, &rows, job->y_stride, error);
  }
  return status;
}

void cpu_sequence_free(struct sequence *sequence) {
  free(sequence->memory);
  *sequence = (struct sequence){0};
}
