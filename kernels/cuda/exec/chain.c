#include "chain.h"

#include "../runtime/transfer.h"

/* Up to so many bytes of few rows are fetched by a kernel that reads mapped memory: a copy by the copy engine takes
 * longer to start, and the next kernel longer to notice its end. */
enum { FETCHED_MOST = 1 << 20 };

/* ---- one job */

int64_t chain_columns(const struct backend_job *job) {
  if (!job->steps)
    return job->weight->weight.n;
  const struct backend_step *last = &job->steps[job->step_count - 1];
  return last->gated ? last->weight->weight.n / 2 : last->weight->weight.n;
}

static uint64_t row_bytes(const struct backend_job *job, enum chain_tensor tensor) {
  const struct gemm_weight *weight = &job->weight->weight;
  switch (tensor) {
  case CHAIN_X:
    return (uint64_t)weight->k * gemm_type_bytes(job->x_type);
  case CHAIN_X_SCALES:
    return weight->scale == GEMM_SCALE_BLOCK ? (uint64_t)job->weight->layout.k / GEMM_GROUP * 4 : 4;
  default:
    return (uint64_t)chain_columns(job) * gemm_type_bytes(job->y_type);
  }
}

static uint64_t stride_of(const struct backend_job *job, enum chain_tensor tensor) {
  return tensor == CHAIN_X ? job->x_stride : tensor == CHAIN_Y ? job->y_stride : row_bytes(job, tensor);
}

static uint8_t *row_at(const struct backend_job *job, enum chain_tensor tensor, int64_t row) {
  const void *base = tensor == CHAIN_X ? job->x : tensor == CHAIN_Y ? job->y : job->x_scale;
  return (uint8_t *)(uintptr_t)base + (uint64_t)row * stride_of(job, tensor);
}

static const struct backend_arena *memory_of(const struct backend_job *job, enum chain_tensor tensor) {
  const struct backend_arena *own = tensor == CHAIN_X ? job->x_memory : tensor == CHAIN_Y ? job->y_memory : NULL;
  return own ? own : job->arena;
}

/* ---- runs of rows of one job each */

struct run {
  const struct backend_job *job;
  int64_t row, rows; /* of the job */
  int64_t place;     /* of the chain: 0 .. chain.rows - 1 */
};

static bool run_fill(const struct chain *chain, struct run *run, int64_t skip) {
  while (run->job && skip >= run->job->m) {
    skip -= run->job->m;
    run->job = run->job->next;
  }
  int64_t left = chain->rows - run->place;
  if (!run->job || left <= 0)
    return false;
  run->row = skip;
  run->rows = run->job->m - skip < left ? run->job->m - skip : left;
  return true;
}

static bool run_first(const struct chain *chain, int64_t place, struct run *run) {
  *run = (struct run){.job = chain->jobs, .place = place};
  return run_fill(chain, run, chain->row + place);
}

static bool run_next(const struct chain *chain, struct run *run) {
  run->place += run->rows;
  run->job = run->job->next;
  return run_fill(chain, run, 0);
}

int chain_table(const struct chain *chain, enum chain_tensor tensor, int64_t from, struct row_table *out) {
  struct run run;
  int count = 0;
  *out = (struct row_table){.rows = {NULL}}; /* the same bytes for the same rows: see launches.h */
  for (bool more = run_first(chain, from, &run); more && count < ROW_TABLE; more = run_next(chain, &run)) {
    const struct backend_arena *arena = memory_of(run.job, tensor);
    if (!arena->device)
      return 0;
    for (int64_t i = 0; i < run.rows && count < ROW_TABLE; i++)
      out->rows[count++] = arena->device + (row_at(run.job, tensor, run.row + i) - arena->base);
  }
  return count;
}

/* ---- all of them */

/* By a kernel, tables of rows at a time. False where the device cannot reach them all. */
static bool by_kernel(struct slot *slot, const struct chain *chain, enum chain_tensor tensor, uint8_t *device,
                      uint64_t device_stride, cudaError_t *result) {
  struct row_table table;
  uint64_t bytes = row_bytes(chain->jobs, tensor);
  *result = cudaSuccess;
  for (int64_t done = 0; done < chain->rows && *result == cudaSuccess;) {
    int count = chain_table(chain, tensor, done, &table);
    if (count == 0)
      return false;
    uint8_t *rows = device + (uint64_t)done * device_stride;
    *result = tensor == CHAIN_Y ? launch_rows_scatter(slot->stream, rows, device_stride, count, bytes, &table)
                                : launch_rows_gather(slot->stream, &table, count, bytes, rows, device_stride);
    done += count;
  }
  return true;
}

static cudaError_t by_copies(struct slot *slot, const struct chain *chain, enum chain_tensor tensor, uint8_t *device,
                             uint64_t device_stride) {
  struct run run;
  cudaError_t result = cudaSuccess;
  for (bool more = run_first(chain, 0, &run); more && result == cudaSuccess; more = run_next(chain, &run)) {
    struct rows rows = {.row_bytes = row_bytes(run.job, tensor),
                        .rows = (uint64_t)run.rows,
                        .device = device + (uint64_t)run.place * device_stride,
                        .device_stride = device_stride,
                        .host = row_at(run.job, tensor, run.row),
                        .host_stride = stride_of(run.job, tensor)};
    const struct backend_arena *memory = memory_of(run.job, tensor);
    result = tensor == CHAIN_Y ? transfer_out(slot, memory, &rows) : transfer_in(slot, memory, &rows);
  }
  return result;
}

cudaError_t chain_in(struct slot *slot, const struct chain *chain, enum chain_tensor tensor, void *device,
                     uint64_t device_stride) {
  cudaError_t result;
  bool few = chain->rows <= ROW_TABLE && row_bytes(chain->jobs, tensor) * (uint64_t)chain->rows <= FETCHED_MOST;
  if ((chain->jobs->next || few) && by_kernel(slot, chain, tensor, device, device_stride, &result))
    return result;
  return by_copies(slot, chain, tensor, device, device_stride);
}

cudaError_t chain_out(struct slot *slot, const struct chain *chain, void *device, uint64_t device_stride) {
  cudaError_t result;
  if (chain->jobs->next && by_kernel(slot, chain, CHAIN_Y, device, device_stride, &result))
    return result;
  return by_copies(slot, chain, CHAIN_Y, device, device_stride);
}
