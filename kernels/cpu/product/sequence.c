#include "sequence.h"

#include "activate.h"

#include <inttypes.h>
#include <stdlib.h>

enum {
  ROWS_AT_ONCE = 512,
  BYTES_AT_ONCE = 16 << 20,   /* of them in the widest product, but for one row */
  COST_ACTIVATION_NS = 8,     /* of an element */
  ACTIVATED_AT_ONCE = 1 << 18 /* elements, between two pauses */
};

int64_t cpu_step_columns(const struct backend_step *step) {
  return step->gated ? step->weight->shape.n / 2 : step->weight->shape.n;
}

int64_t cpu_job_columns(const struct backend_job *job) {
  return job->steps != NULL ? cpu_step_columns(&job->steps[job->step_count - 1]) : job->weight->shape.n;
}

bool cpu_step_activates(const struct backend_step *step) {
  return step->gated || step->activation != GEMM_ACTIVATION_NONE;
}

static uint64_t widest_row_bytes(const struct backend_job *job) {
  uint64_t widest = 0;
  for (uint32_t i = 0; i < job->step_count; i++) {
    const struct backend_step *step = &job->steps[i];
    uint64_t bytes = (uint64_t)step->weight->shape.n * gemm_type_bytes(step->y_type);
    widest = bytes > widest ? bytes : widest;
  }
  return widest;
}

static int64_t rows_at_once(const struct backend_job *job) {
  int64_t rows = BYTES_AT_ONCE / (int64_t)widest_row_bytes(job);
  rows = rows < 1 ? 1 : rows > ROWS_AT_ONCE ? ROWS_AT_ONCE : rows;
  return rows < job->m ? rows : job->m;
}

/* Two places for so many rows of the widest product: v, which a step makes, and x, which the next one reads. */
static enum status reserve(struct sequence *sequence, const struct backend_job *job, int64_t rows, uint64_t *half,
                           struct error *error) {
  *half = gemm_round_up((uint64_t)rows * widest_row_bytes(job), GEMM_SECTION);
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

static enum status activate(const struct sequence_device *device, const struct activate_task *all,
                            struct error *error) {
  int64_t width = all->gated ? 2 * all->columns : all->columns, at_once = ACTIVATED_AT_ONCE / width;
  struct activate_task task = *all;
  enum status status = STATUS_OK;
  at_once = device->engine->pause == NULL ? all->rows : at_once > 0 ? at_once : 1;
  for (int64_t row = 0; status == STATUS_OK && row < all->rows; row += at_once) {
    task.v = (const uint8_t *)all->v + (uint64_t)(row * width) * gemm_type_bytes(all->type);
    task.out = (uint8_t *)all->out + (uint64_t)row * all->out_stride;
    task.rows = all->rows - row < at_once ? all->rows - row : at_once;
    cpu_activate(device->engine->pool, &task);
    status = cpu_pause_here(device->engine->pause, (uint64_t)(task.rows * width) * COST_ACTIVATION_NS, error);
  }
  return status;
}

static enum status step_run(const struct sequence_device *device, const struct backend_step *step, bool last,
                            struct rows *rows, uint64_t y_stride, struct error *error) {
  struct backend_job one = step_job(step, rows);
  if (last && !cpu_step_activates(step)) {
    one.y = rows->y;
    one.y_stride = y_stride;
    return device->run(device->engine, &one, error);
  }
  enum status status = device->run(device->engine, &one, error);
  if (status != STATUS_OK)
    return status;
  struct activate_task task = {.v = rows->v,
                               .out = last ? rows->y : rows->between,
                               .rows = rows->x.m,
                               .columns = cpu_step_columns(step),
                               .type = step->y_type,
                               .activation = step->activation,
                               .gated = step->gated};
  task.out_stride = last ? y_stride : (uint64_t)task.columns * gemm_type_bytes(task.type);
  status = activate(device, &task, error);
  rows->x.x = rows->between;
  rows->x.x_type = step->y_type;
  rows->x.x_stride = task.out_stride;
  rows->x.x_scale = NULL;
  return status;
}

enum status cpu_sequence_run(struct sequence *sequence, const struct sequence_device *device,
                             const struct backend_job *job, struct error *error) {
  uint64_t half = 0;
  int64_t rows_most = rows_at_once(job);
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
