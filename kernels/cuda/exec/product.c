/* A chunk as the kernels are called with it, and y of what they make. */
#include "product.h"

#include "../families/table.h"
#include "run.h"

/* x where the product reads it: as it comes, or codes. */
static void x_of(const struct chunk *chunk, struct kernel_call *call) {
  const struct layout *layout = &chunk->weight->layout;
  const struct gemm_weight *weight = &chunk->weight->weight;
  call->x = chunk_staged(chunk, chunk->at.codes);
  call->x_stride = layout->x_row_bytes;
  if (gemm_quantizes_x(weight->format))
    call->x_scale = chunk_staged(chunk, chunk->at.scales);
  if (!layout_keeps_x(weight))
    return;
  call->x = chunk_staged(chunk, weight->input ? chunk->at.ordered : chunk->at.x);
  call->x_stride = (uint64_t)layout_x_columns(weight, layout) * gemm_type_bytes(chunk->job->x_type);
}

/* Behind kernels of ours, W streams in while those still run: a thing of Hopper. Where so many products run at a time
 * that some of each might fill the device, kernels whose blocks wait for each other must have them all. */
static struct kernel_call call_of(const struct backend *backend, struct chunk *chunk) {
  const struct backend_job *job = chunk->job;
  const struct slot *slot = chunk->slot;
  bool hopper = backend->gpu.capability >= 90;
  struct kernel_call call = {
      .weight = chunk->weight,
      .m = chunk->rows,
      .m_padded = chunk->rows_padded,
      .x_type = job->x_type,
      .y_type = job->y_type,
      .bias_type = job->bias ? job->bias_type : GEMM_TYPE_NONE,
      .bias = job->bias ? chunk_staged(chunk, chunk->at.bias) : NULL,
      .y_rows = chunk->y_rows,
      .sums = chunk_staged(chunk, chunk->at.sums),
      .workspace = (void *)(uintptr_t)slot->workspace.address,
      .int2_sums = slot->int2_sums,
      .stream = slot->stream,
      .follows = chunk->follows && hopper,
      .in_row = chunk->in_row && hopper,
      .resident = backend->slot_count * KERNEL_WAITED_FOR >= backend->gpu.multiprocessors,
  };
  x_of(chunk, &call);
  call.y = chunk_y_target(chunk, &call.y_stride);
  return call;
}

/* Rows of y that lie apart have been written by the kernel where it can do that. */
static cudaError_t finish(struct chunk *chunk, const struct kernel_call *call, const struct variant *used,
                          const struct kernel_sums *left) {
  if (left->type == GEMM_TYPE_NONE && call->y_rows && kernel_family_of(used)->writes_rows)
    return cudaSuccess;
  if (left->type != GEMM_TYPE_NONE && kernel_sums_are_y(call, left))
    return chunk_sums_done(chunk);
  cudaError_t result = left->type == GEMM_TYPE_NONE ? cudaSuccess : kernel_finish(call, left);
  return result == cudaSuccess ? chunk_y_done(chunk, call->y, call->y_stride) : result;
}

enum status chunk_compute(struct backend *backend, struct chunk *chunk, struct error *error) {
  struct kernel_call call = call_of(backend, chunk);
  struct variant used;
  struct kernel_sums left;
  enum status status = kernel_run(backend, backend->selector, &call, chunk->job->variant, &used, &left, error);
  return status == STATUS_OK ? runtime_check(finish(chunk, &call, &used, &left), "finishing a product", error) : status;
}
