#include "experts.h"

#include "../experts/run.h"
#include "../launch/graph.h"
#include "../runtime/transfer.h"

/* The slot's word has room behind it for how many were skipped. */
enum { SKIPPED_WORD = 1 };

/* Where tensors lie in staging memory: `skipped` first, so that it stays where it is from go to go. */
struct places {
  uint64_t skipped, x, ids, routing, y, bias[GEMM_STEPS_MOST], run;
};

static uint64_t take(uint64_t *used, uint64_t bytes) {
  uint64_t at = *used;
  *used = gemm_round_up(at + bytes, GEMM_SECTION);
  return at;
}

static uint64_t x_row_bytes(const struct backend_job *job) {
  return (uint64_t)job->weight->weight.k * gemm_type_bytes(job->x_type);
}

static uint64_t y_row_bytes(const struct backend_job *job) {
  return (uint64_t)experts_columns(job) * gemm_type_bytes(job->y_type);
}

static uint64_t bias_bytes(const struct backend_weight *weight, enum gemm_type type) {
  return (uint64_t)(weight->weight.n * gemm_matrices(&weight->weight)) * gemm_type_bytes(type);
}

static struct places places_for(const struct backend_job *job, int64_t rows) {
  uint64_t used = 0, m = (uint64_t)rows, pairs = m * (uint64_t)job->experts->top;
  struct places at = {.skipped = take(&used, sizeof(uint32_t))};
  at.bias[0] = take(&used, job->steps || !job->bias ? 0 : bias_bytes(job->weight, job->bias_type));
  for (uint32_t i = 0; i < job->step_count; i++)
    at.bias[i] = take(&used, job->steps[i].bias ? bias_bytes(job->steps[i].weight, job->steps[i].bias_type) : 0);
  at.x = take(&used, m * (uint64_t)experts_x_rows(job) * x_row_bytes(job));
  at.ids = take(&used, pairs * sizeof(int32_t));
  at.routing = take(&used, pairs * sizeof(float));
  at.y = take(&used, m * (uint64_t)experts_y_rows(job) * y_row_bytes(job));
  at.run = used;
  return at;
}

enum status experts_rows(const struct slot *slot, const struct backend_job *job, int64_t rows, int64_t *out,
                         struct error *error) {
  uint64_t have = atomic_load_explicit(&slot->staging.bytes, memory_order_relaxed), fixed = places_for(job, 0).run;
  uint64_t each = places_for(job, GEMM_GROUP).run / GEMM_GROUP + 1;
  uint64_t apart = GEMM_SECTION * (GEMM_STEPS_MOST + 8); /* what rounding up takes */
  return experts_run_rows(job, rows, each, have > fixed + apart ? have - fixed - apart : 0, out, error);
}

static void *staged(const struct slot *slot, uint64_t offset) {
  return (void *)(uintptr_t)(slot->staging.address + offset);
}

/* Device memory of the client's is used where it lies. */
static void *in_place(const struct backend_arena *memory, const void *pointer) {
  return memory && memory->device ? memory->device + ((const uint8_t *)pointer - memory->base) : NULL;
}

static cudaError_t bring(struct slot *slot, const struct backend_arena *memory, uint64_t at, const void *from,
                         uint64_t row_bytes, uint64_t stride, int64_t rows) {
  struct rows some = {.row_bytes = row_bytes,
                      .rows = (uint64_t)rows,
                      .device = staged(slot, at),
                      .device_stride = row_bytes,
                      .host = (void *)(uintptr_t)from,
                      .host_stride = stride};
  return transfer_in(slot, memory, &some);
}

static cudaError_t bring_bias(struct slot *slot, const struct places *at) {
  const struct backend_job *job = &slot->job;
  cudaError_t result = cudaSuccess;
  if (!job->steps && job->bias)
    return bring(slot, job->arena, at->bias[0], job->bias, bias_bytes(job->weight, job->bias_type), 0, 1);
  for (uint32_t i = 0; i < job->step_count && result == cudaSuccess; i++) {
    const struct backend_step *step = &job->steps[i];
    if (step->bias)
      result = bring(slot, job->arena, at->bias[i], step->bias, bias_bytes(step->weight, step->bias_type), 0, 1);
  }
  return result;
}

/* Behind what is brought in the run begins: `row` is the slot's row that is its first. */
static struct experts_run run_of(struct backend *backend, const struct slot *slot, const struct places *at, int64_t row,
                                 int64_t rows) {
  const struct backend_job *job = &slot->job;
  const struct backend_experts *experts = job->experts;
  struct experts_run run = {.backend = backend,
                            .selector = backend->selector,
                            .stream = slot->stream,
                            .job = job,
                            .rows = rows,
                            .skipped = staged(slot, at->skipped),
                            .memory = slot->staging.address + at->run,
                            .workspace = (void *)(uintptr_t)slot->workspace.address};
  const void *x = (const uint8_t *)job->x + (uint64_t)(row * experts_x_rows(job)) * job->x_stride;
  void *y = (uint8_t *)job->y + (uint64_t)(row * experts_y_rows(job)) * job->y_stride;
  run.x = in_place(job->x_memory, x);
  run.x_stride = run.x ? job->x_stride : x_row_bytes(job);
  run.ids = in_place(job->x_memory, experts->ids + row * experts->top);
  run.routing = experts->routing ? in_place(job->x_memory, experts->routing + row * experts->top) : NULL;
  run.y = in_place(job->y_memory, y);
  run.y_stride = run.y ? job->y_stride : y_row_bytes(job);
  if (!run.x) {
    run.x = staged(slot, at->x);
    run.ids = staged(slot, at->ids);
    run.routing = experts->routing ? staged(slot, at->routing) : NULL;
  }
  if (!run.y)
    run.y = staged(slot, at->y);
  run.bias[0] = job->bias && !job->steps ? staged(slot, at->bias[0]) : NULL;
  for (uint32_t i = 0; i < job->step_count; i++)
    run.bias[i] = job->steps[i].bias ? staged(slot, at->bias[i]) : NULL;
  return run;
}

/* x, ids, routing and bias of the slot's next rows. */
static cudaError_t stage(struct slot *slot, const struct places *at, int64_t rows) {
  const struct backend_job *job = &slot->job;
  const struct backend_experts *experts = job->experts;
  int64_t row = slot->next_row, x_rows = experts_x_rows(job);
  uint64_t ids_bytes = (uint64_t)(rows * experts->top) * sizeof(int32_t);
  const struct backend_arena *memory = job->x_memory ? job->x_memory : job->arena;
  const void *x = (const uint8_t *)job->x + (uint64_t)(row * x_rows) * job->x_stride;
  cudaError_t result = bring_bias(slot, at);
  if (row == slot->first_row && result == cudaSuccess)
    result = cudaMemsetAsync(staged(slot, at->skipped), 0, sizeof(uint32_t), graph_stream(slot));
  if (result != cudaSuccess || in_place(job->x_memory, job->x))
    return result;
  result = bring(slot, memory, at->x, x, x_row_bytes(job), job->x_stride, rows * x_rows);
  if (result == cudaSuccess)
    result = bring(slot, memory, at->ids, experts->ids + row * experts->top, ids_bytes, 0, 1);
  if (result == cudaSuccess && experts->routing)
    result = bring(slot, memory, at->routing, experts->routing + row * experts->top, ids_bytes, 0, 1);
  return result;
}

static cudaError_t bring_y_out(struct slot *slot, const struct experts_run *run) {
  const struct backend_job *job = &slot->job;
  const struct backend_arena *memory = job->y_memory ? job->y_memory : job->arena;
  int64_t y_rows = experts_y_rows(job);
  struct rows rows = {.row_bytes = y_row_bytes(job),
                      .rows = (uint64_t)(run->rows * y_rows),
                      .device = run->y,
                      .device_stride = run->y_stride,
                      .host = (uint8_t *)job->y + (uint64_t)(slot->next_row * y_rows) * job->y_stride,
                      .host_stride = job->y_stride};
  return in_place(job->y_memory, job->y) ? cudaSuccess : transfer_out(slot, memory, &rows);
}

/* Goes are laid out for as many rows as the longest has. */
static struct places places_of(const struct slot *slot) {
  return places_for(&slot->job, slot->rows_most);
}

enum status experts_stage(struct slot *slot, int64_t rows, struct error *error) {
  struct places at = places_of(slot);
  return runtime_check(stage(slot, &at, rows), "copying rows to the GPU", error);
}

enum status experts_bare(struct backend *backend, struct slot *slot, int64_t rows, bool sorted, struct error *error) {
  struct places at = places_of(slot);
  struct experts_run run = run_of(backend, slot, &at, slot->first_row, rows);
  run.y = staged(slot, at.y);
  run.y_stride = y_row_bytes(&slot->job);
  run.early = true;
  run.sorted = sorted;
  return experts_run(&run, error);
}

enum status experts_queue(struct backend *backend, struct slot *slot, int64_t rows, struct error *error) {
  struct places at = places_of(slot);
  struct experts_run run = run_of(backend, slot, &at, slot->next_row, rows);
  cudaError_t result = stage(slot, &at, rows);
  if (result != cudaSuccess)
    return runtime_check(result, "copying rows to the GPU", error);
  enum status status = experts_run(&run, error);
  if (status != STATUS_OK)
    return status;
  result = bring_y_out(slot, &run);
  if (result == cudaSuccess)
    result = cudaMemcpyAsync(slot->word + SKIPPED_WORD, staged(slot, at.skipped), sizeof(uint32_t),
                             cudaMemcpyDeviceToHost, graph_stream(slot));
  return runtime_check(result, "copying y from the GPU", error);
}

uint32_t experts_skipped(const struct slot *slot) {
  return slot->job.experts ? __atomic_load_n(slot->word + SKIPPED_WORD, __ATOMIC_ACQUIRE) : 0;
}
