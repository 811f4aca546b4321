#include "sequence.h"

#include "../passes/activate.h"
#include "product.h"

/* ---- places: those of the steps lie behind each other */

struct staging sequence_place(const struct backend_step *step, int64_t rows, uint64_t *used) {
  struct staging at = staging_place(&step->weight->weight, &step->weight->layout, rows);
  uint64_t *const offsets[] = {&at.x,    &at.ordered, &at.codes, &at.scales, &at.scales_in,
                               &at.sums, &at.y,       &at.bias,  &at.y_rows};
  for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++)
    *offsets[i] += *used;
  *used += at.bytes;
  return at;
}

static uint64_t bytes_for(const struct backend_job *job, int64_t rows) {
  uint64_t used = 0;
  for (uint32_t i = 0; i < job->step_count; i++)
    (void)sequence_place(&job->steps[i], rows, &used);
  return used + 4 * (uint64_t)(rows * chain_columns(job)); /* the result, where it cannot be written in place */
}

enum status sequence_rows(const struct slot *slot, const struct backend_job *job, int64_t rows, int64_t *out,
                          struct error *error) {
  uint64_t have = atomic_load_explicit(&slot->staging.bytes, memory_order_relaxed);
  int64_t low = 0, high = rows < ROWS_MOST ? rows : ROWS_MOST;
  if (bytes_for(job, high) <= have)
    low = high;
  while (low < high) {
    int64_t middle = (low + high + 1) / 2;
    if (bytes_for(job, middle) <= have)
      low = middle;
    else
      high = middle - 1;
  }
  *out = low;
  if (low > 0)
    return STATUS_OK;
  return error_set(error, STATUS_NOMEM, "one row of the plan takes %llu bytes of the GPU between its products, of %llu",
                   (unsigned long long)bytes_for(job, 1), (unsigned long long)have);
}

/* ---- steps */

/* A step as a product: `job` is filled in for it, and *used moves on behind its place. */
static struct chunk step_chunk(const struct sequence *sequence, uint32_t i, enum gemm_type x_type, uint64_t *used,
                               struct backend_job *job) {
  const struct backend_job *whole = &sequence->slot->job;
  const struct backend_step *step = &whole->steps[i];
  *job = *whole;
  job->weight = step->weight;
  job->x_type = x_type;
  job->y_type = step->y_type;
  job->bias = step->bias;
  job->bias_type = step->bias_type;
  job->variant = step->variant;
  bool last = i + 1 == whole->step_count, activates = step->gated || step->activation != GEMM_ACTIVATION_NONE;
  return (struct chunk){.slot = sequence->slot,
                        .job = job,
                        .weight = step->weight,
                        .at = sequence_place(step, sequence->rows_most, used),
                        .row = sequence->row,
                        .rows = sequence->rows,
                        .rows_padded = staging_pad(&step->weight->weight, sequence->rows),
                        .stays = sequence->stays || !last || activates,
                        .follows = sequence->dependent,
                        .in_row = sequence->dependent && i > 0};
}

static struct activate_pass pass_of(const struct chunk *v, const struct backend_step *step) {
  return (struct activate_pass){.v = v->v,
                                .v_stride = v->v_stride,
                                .type = step->y_type,
                                .m = v->rows,
                                .columns = step->gated ? step->weight->weight.n / 2 : step->weight->weight.n,
                                .activation = step->activation,
                                .gated = step->gated,
                                .dependent = v->follows};
}

void sequence_reads(const struct backend_weight *weight, int64_t rows_padded, enum gemm_type type,
                    struct activate_pass *out) {
  enum gemm_type codes = gemm_format_facts(weight->weight.format)->codes;
  bool block = weight->weight.scale == GEMM_SCALE_BLOCK;
  out->to = ACTIVATE_TO_VALUES;
  if (weight->weight.input == 0 && codes != GEMM_TYPE_NONE)
    out->to = codes == GEMM_INT8 ? ACTIVATE_TO_INT8 : block ? ACTIVATE_TO_E4M3_BLOCKS : ACTIVATE_TO_E4M3;
  out->k_padded = weight->weight.input ? weight->weight.k : layout_x_columns(&weight->weight, &weight->layout);
  out->rows_padded = rows_padded;
  out->out_stride = (uint64_t)out->k_padded * gemm_type_bytes(type);
}

/* From v of one step to what the next one reads. */
static cudaError_t activate_into(const struct backend *backend, const struct chunk *v, const struct backend_step *step,
                                 const struct chunk *next) {
  const struct backend_weight *weight = next->weight;
  struct activate_pass pass = pass_of(v, step);
  sequence_reads(weight, next->rows_padded, step->y_type, &pass);
  bool as_it_comes = weight->weight.input || layout_keeps_x(&weight->weight);
  pass.out = chunk_staged(next, as_it_comes ? next->at.x : next->at.codes);
  pass.scales = chunk_staged(next, next->at.scales);
  pass.clusters = backend->gpu.capability >= 90;
  cudaError_t result = launch_activate(v->slot->stream, &pass);
  return result == cudaSuccess && weight->weight.input ? chunk_input(next) : result;
}

/* From v of the last step to y, by way of staging memory at `at` where that must be. */
static cudaError_t activate_out(const struct chunk *v, const struct backend_step *step, uint64_t at, bool stays) {
  struct activate_pass pass = pass_of(v, step);
  uint64_t row_bytes = (uint64_t)pass.columns * gemm_type_bytes(step->y_type);
  pass.k_padded = pass.columns;
  pass.out_stride = row_bytes;
  pass.out = stays ? chunk_staged(v, at) : chunk_y(v, at, row_bytes, &pass.out_stride);
  cudaError_t result = launch_activate(v->slot->stream, &pass);
  return result != cudaSuccess || stays ? result : chunk_y_out(v, pass.out, pass.out_stride);
}

/* ---- all of them */

enum status sequence_stage(const struct sequence *sequence, bool bare, struct error *error) {
  const struct backend_job *whole = &sequence->slot->job;
  enum gemm_type x_type = whole->x_type;
  enum status status = STATUS_OK;
  uint64_t used = 0;
  for (uint32_t i = 0; i < whole->step_count && status == STATUS_OK; i++) {
    struct backend_job job;
    struct chunk chunk = step_chunk(sequence, i, x_type, &used, &job);
    if (i == 0)
      status = bare ? chunk_stage_bare(&chunk, error) : chunk_stage(&chunk, error);
    else if (sequence->row == sequence->slot->first_row && job.bias)
      status = runtime_check(chunk_bias(&chunk), "copying a bias to the GPU", error);
    x_type = job.y_type;
  }
  return status;
}

enum status sequence_run(struct backend *backend, const struct sequence *sequence, bool bare, struct error *error) {
  const struct backend_job *whole = &sequence->slot->job;
  struct backend_job jobs[2];
  uint64_t used = 0;
  struct chunk chunk = step_chunk(sequence, 0, whole->x_type, &used, &jobs[0]);
  enum status status = bare ? chunk_quantize_bare(&chunk, error) : STATUS_OK;
  if (status == STATUS_OK)
    status = chunk_compute(backend, &chunk, error);
  for (uint32_t i = 1; i < whole->step_count && status == STATUS_OK; i++) {
    struct chunk next = step_chunk(sequence, i, chunk.job->y_type, &used, &jobs[i % 2]);
    status =
        runtime_check(activate_into(backend, &chunk, &whole->steps[i - 1], &next), "starting an activation", error);
    if (status == STATUS_OK)
      status = chunk_compute(backend, &next, error);
    chunk = next;
  }
  const struct backend_step *last = &whole->steps[whole->step_count - 1];
  if (status == STATUS_OK && (last->gated || last->activation != GEMM_ACTIVATION_NONE))
    status = runtime_check(activate_out(&chunk, last, used, sequence->stays), "starting an activation", error);
  return status;
}
