#include "turns.h"

#include "../job.h"
#include "../measure/cold.h"
#include "../measure/measured.h"
#include "../operand.h"
#include "../predict.h"
#include "../submit.h"
#include "../tensors.h"
#include "pieces.h"

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

/* Three quarters of what it may take are the panel's, the rest is for x and y of at least GEMM_GROUP rows. */
static int64_t panel_of(const struct backend *backend, const struct backend_operand *operand) {
  enum { SUMS_BYTES = 8 }; /* of an element of y on its way */
  uint64_t bytes = operand_bytes(backend);
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
  int64_t pieces = 1;
  turns->tensors = tensors_serves(backend, job);
  if (turns->tensors)
    status = backend_enter(backend, error);
  if (turns->tensors && status == STATUS_OK)
    status = tensors_pieces(backend, job, &turns->operand, &pieces, error);
  if (status != STATUS_OK)
    return status;
  keep_job(turns, job);
  turns->taken = true;
  turns->abandoned = false;
  turns->rows = turns->tensors ? pieces : predict_rows_of(job);
  bool panels = job->operand && !turns->tensors;
  turns->columns = panels ? job->operand->shape.n : 1;
  turns->panel = panels ? panel_of(backend, job->operand) : 1;
  turns->row = turns->next_row = turns->column = 0;
  turns->staged = -1;
  turns->took_ns = 0;
  turns->skipped = 0;
  *out = turns;
  return STATUS_OK;
}

void cuda_turns_abandon(struct backend *backend, struct backend_turns *turns) {
  turns->abandoned = true;
}

/* ---- a turn */

static enum status stage_panel(struct backend *backend, struct slot *slot, int64_t rows, struct error *error) {
  struct backend_turns *turns = slot->turns;
  struct operand_panel panel = {.column = turns->column,
                                .columns = turn_columns(turns),
                                .rows = rows,
                                .bytes = operand_bytes(backend) / 4,
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
    int64_t rows = turns->tensors ? 1 : predict_piece(backend, turns, budget_ns);
    submit_take(slot, &turns->job, turns, turns->row, turns->row + rows);
    turns->next_row = turns->row + rows;
    slot->tensors = turns->tensors ? &turns->operand : NULL;
    if (turns->job.operand && !turns->tensors)
      status = stage_panel(backend, slot, rows, error);
    if (status == STATUS_OK)
      status = submit_start(backend, slot, error);
  }
  turns->taken = status == STATUS_OK;
  return status;
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
  measured_close(backend);
  cold_rest(backend);
}
