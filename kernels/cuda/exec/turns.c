#include "turns.h"

#include "chain.h"
#include "job.h"
#include "operand.h"
#include "pieces.h"
#include "staging.h"
#include "submit.h"

/* ---- how long */

static struct pieces_device device_of(const struct backend *backend, enum gemm_format format) {
  uint64_t operations = backend->operations_per_s;
  bool half = gemm_is_wide(format) || format == GEMM_FORMAT_INT2;
  return (struct pieces_device){.operations_per_s = half ? operations / 2 : operations,
                                .bytes_per_s = backend->bytes_per_s};
}

static bool is_far(const struct backend_job *job) {
  return !job->x_memory || !job->y_memory;
}

/* Of x and y. */
static uint64_t row_bytes_of(const struct backend_job *job, int64_t n, int64_t k) {
  return (uint64_t)k * gemm_type_bytes(job->x_type) + (uint64_t)n * gemm_type_bytes(job->y_type);
}

static struct pieces_work work_of(const struct backend_job *job) {
  struct pieces_work work = {.far = is_far(job)};
  if (!job->steps) {
    const struct gemm_weight *shape = &job->weight->weight;
    work.operations_a_row = 2 * (double)shape->n * (double)shape->k;
    work.weight_bytes = job->weight->layout.total_bytes;
    work.row_bytes = row_bytes_of(job, shape->n, shape->k);
    return work;
  }
  for (uint32_t i = 0; i < job->step_count; i++) {
    const struct backend_weight *weight = job->steps[i].weight;
    work.operations_a_row += 2 * (double)weight->weight.n * (double)weight->weight.k;
    work.weight_bytes += weight->layout.total_bytes;
  }
  work.row_bytes = row_bytes_of(job, chain_columns(job), job->steps[0].weight->weight.k);
  return work;
}

/* Of columns of y with a panel of W. */
static struct pieces_work panel_work(const struct backend_job *job, int64_t columns, bool copied) {
  int64_t k = job->operand->shape.k;
  uint64_t bytes = (uint64_t)columns * (uint64_t)k * 2;
  return (struct pieces_work){.operations_a_row = 2 * (double)columns * (double)k,
                              .weight_bytes = bytes,
                              .copied_bytes = copied ? bytes : 0,
                              .row_bytes = row_bytes_of(job, columns, k),
                              .far = is_far(job)};
}

static enum gemm_format format_of(const struct backend_job *job) {
  return job->operand ? job->operand->shape.format
         : job->steps ? job->steps[0].weight->weight.format
                      : job->weight->weight.format;
}

static int64_t rows_of(const struct backend_job *job) {
  int64_t rows = 0;
  for (const struct backend_job *each = job; each; each = each->next)
    rows += each->m;
  return rows;
}

uint64_t cuda_predict_ns(const struct backend *backend, const struct backend_job *job) {
  struct pieces_device device = device_of(backend, format_of(job));
  if (!job->operand) {
    struct pieces_work work = work_of(job);
    return pieces_predict_ns(&device, &work, rows_of(job));
  }
  bool copied = !operand_lies_there(job->operand);
  struct pieces_work work = panel_work(job, job->operand->shape.n, copied);
  uint64_t ns = pieces_predict_ns(&device, &work, job->m);
  /* what one product may take of the device's memory bounds what goes at once, too */
  uint64_t taken = work.copied_bytes + work.row_bytes * (uint64_t)job->m;
  return taken <= turns_operand_bytes(backend) / 2 ? ns : UINT64_MAX;
}

void turns_note_longest(struct backend *backend, uint64_t ns) {
  if (ns > cuda_longest_ns(backend))
    atomic_store_explicit(&backend->longest_ns, ns, memory_order_relaxed);
}

uint64_t cuda_longest_ns(const struct backend *backend) {
  return atomic_load_explicit(&backend->longest_ns, memory_order_relaxed);
}

/* ---- begin */

/* Kernels are the tuner's, which may think otherwise meanwhile. */
static const struct variant *keep_variant(struct backend_turns *turns, uint32_t step, const struct variant *variant) {
  if (!variant)
    return NULL;
  turns->variants[step] = *variant;
  return &turns->variants[step];
}

static void keep_job(struct backend_turns *turns, const struct backend_job *job) {
  turns->job = *job;
  if (!job->steps) {
    turns->job.variant = keep_variant(turns, 0, job->variant);
    return;
  }
  for (uint32_t i = 0; i < job->step_count; i++) {
    turns->steps[i] = job->steps[i];
    turns->steps[i].variant = keep_variant(turns, i, job->steps[i].variant);
  }
  turns->job.steps = turns->steps;
}

uint64_t turns_operand_bytes(const struct backend *backend) {
  enum { SHARE = 64 };
  return backend->memory_total / SHARE / CUDA_TURNS;
}

/* Three quarters of what it may take are the panel's, the rest is for x and y of at least GEMM_GROUP rows. */
static int64_t panel_of(const struct backend *backend, const struct backend_operand *operand) {
  enum { SUMS_BYTES = 8 }; /* of an element of y on its way */
  uint64_t bytes = turns_operand_bytes(backend);
  uint64_t row = (uint64_t)operand->shape.k * 2;
  int64_t panel = operand_lies_there(operand) ? operand->shape.n : pieces_panel(operand->shape.n, row, bytes / 4 * 3);
  int64_t sums = pieces_panel(operand->shape.n, (uint64_t)GEMM_GROUP * SUMS_BYTES, bytes / 8);
  return panel < sums ? panel : sums;
}

enum status cuda_turns_begin(struct backend *backend, const struct backend_job *job, uint32_t most,
                             struct backend_turns **out, struct error *error) {
  struct backend_turns *turns = NULL;
  uint32_t taken = 0;
  for (int i = 0; i < CUDA_TURNS; i++) {
    struct backend_turns *each = &backend->turns[i];
    taken += each->taken;
    /* one that has its memory, before those that have none */
    if (!each->taken && (!turns || (each->operand.part_count > 0 && turns->operand.part_count == 0)))
      turns = each;
  }
  if (!turns || taken >= most)
    return error_set(error, STATUS_BUSY, "%u products that take long are under way", taken);
  enum status status = job_check(job, error);
  if (status != STATUS_OK)
    return status;
  keep_job(turns, job);
  turns->taken = true;
  turns->abandoned = false;
  turns->rows = rows_of(job);
  turns->columns = job->operand ? job->operand->shape.n : 1;
  turns->panel = job->operand ? panel_of(backend, job->operand) : 1;
  turns->row = turns->next_row = turns->column = 0;
  turns->staged = -1;
  turns->took_ns = 0;
  *out = turns;
  return STATUS_OK;
}

void cuda_turns_abandon(struct backend *backend, struct backend_turns *turns) {
  (void)backend;
  turns->abandoned = true;
}

/* ---- a turn */

static int64_t columns_of(const struct backend_turns *turns) {
  int64_t left = turns->columns - turns->column;
  return left < turns->panel ? left : turns->panel;
}

/* Rows of the next piece; what it takes is noted. */
static int64_t piece_rows(struct backend *backend, const struct backend_turns *turns, uint64_t budget_ns) {
  const struct backend_job *job = &turns->job;
  struct pieces_device device = device_of(backend, format_of(job));
  bool copied = job->operand && turns->staged != turns->column && !operand_lies_there(job->operand);
  struct pieces_work work = job->operand ? panel_work(job, columns_of(turns), copied) : work_of(job);
  int64_t rows = pieces_rows(&device, &work, turns->rows - turns->row, budget_ns);
  turns_note_longest(backend, pieces_predict_ns(&device, &work, rows));
  return rows;
}

static enum status stage_panel(struct backend *backend, struct slot *slot, int64_t rows, struct error *error) {
  struct backend_turns *turns = slot->turns;
  struct operand_panel panel = {.column = turns->column,
                                .columns = columns_of(turns),
                                .rows = rows,
                                .bytes = turns_operand_bytes(backend) / 4,
                                .region = &turns->operand,
                                .there = turns->staged == turns->column};
  enum status status = operand_stage(backend, slot, &panel, error);
  if (status == STATUS_OK)
    turns->staged = turns->column;
  return status;
}

enum status cuda_turns_submit(struct backend *backend, struct backend_turns *turns, uint64_t budget_ns,
                              struct error *error) {
  struct slot *slot = submit_slot(backend, true);
  if (!slot)
    return error_set(error, STATUS_BUSY, "%d turns are under way", backend->in_flight);
  enum status status = turns->abandoned ? error_set(error, STATUS_CANCELLED, "the product is not wanted any more")
                                        : backend_enter(backend, error);
  if (status == STATUS_OK) {
    int64_t rows = piece_rows(backend, turns, budget_ns);
    submit_take(slot, &turns->job, turns, turns->row, turns->row + rows);
    turns->next_row = turns->row + rows;
    if (turns->job.operand)
      status = stage_panel(backend, slot, rows, error);
    if (status == STATUS_OK)
      status = submit_start(backend, slot, error);
  }
  turns->taken = status == STATUS_OK;
  return status;
}

bool turns_ended(struct backend_turns *turns, enum status status, uint64_t ns) {
  turns->took_ns += ns;
  turns->row = turns->next_row;
  if (turns->row == turns->rows) {
    turns->row = 0;
    turns->column += columns_of(turns);
  }
  turns->taken = status == STATUS_OK && turns->column < turns->columns;
  return turns->taken;
}

/* ---- memory */

uint64_t turns_bytes(const struct backend *backend) {
  uint64_t bytes = 0;
  for (int i = 0; i < CUDA_TURNS; i++)
    bytes += atomic_load_explicit(&backend->turns[i].operand.bytes, memory_order_relaxed);
  return bytes;
}

void turns_close(struct backend *backend) {
  for (int i = 0; i < CUDA_TURNS; i++)
    region_close(backend->driver, &backend->turns[i].operand);
}

void cuda_rest(struct backend *backend) {
  struct error unreported;
  if (backend_enter(backend, &unreported) != STATUS_OK)
    return;
  for (int i = 0; i < CUDA_TURNS; i++)
    if (!backend->turns[i].taken)
      region_empty(backend->driver, &backend->turns[i].operand);
  for (int i = 0; i < backend->slot_count; i++)
    if (!backend->slots[i].busy)
      region_empty(backend->driver, &backend->slots[i].operand);
}
