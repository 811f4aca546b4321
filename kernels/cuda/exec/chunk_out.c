/* y on its way out, and what the library's sums still need for it. */
#include "chunk.h"
#include "launch.h"

static const struct backend_arena *y_memory(const struct backend_job *job) {
  return job->y_memory ? job->y_memory : job->arena;
}

/* Not so many rows of INT2, which come in runs of a few bytes each: those go faster as one copy. */
static bool in_place(const struct chunk *chunk) {
  const struct backend_job *whole = &chunk->slot->job;
  return !whole->next && y_memory(whole)->device && (!gemm_is_int2(chunk->weight->weight.format) || chunk->rows <= 4);
}

void *chunk_y(const struct chunk *chunk, uint64_t at, uint64_t row_bytes, uint64_t *stride) {
  const struct backend_job *whole = &chunk->slot->job;
  if (in_place(chunk)) {
    *stride = whole->y_stride;
    const struct backend_arena *memory = y_memory(whole);
    return memory->device + ((uint8_t *)whole->y - memory->base) + (uint64_t)chunk->row * whole->y_stride;
  }
  *stride = row_bytes;
  return chunk_staged(chunk, at);
}

cudaError_t chunk_y_out(const struct chunk *chunk, void *y, uint64_t stride) {
  struct chain rows = chunk_chain(chunk);
  return in_place(chunk) ? cudaSuccess : chain_out(chunk->slot, &rows, y, stride);
}

void *chunk_y_target(struct chunk *chunk, uint64_t *stride) {
  uint64_t row_bytes = (uint64_t)chunk->weight->weight.n * gemm_type_bytes(chunk->job->y_type);
  if (!chunk->stays)
    return chunk_y(chunk, chunk->at.y, row_bytes, stride);
  chunk->v = chunk_staged(chunk, chunk->at.y);
  chunk->v_stride = *stride = row_bytes;
  return chunk_staged(chunk, chunk->at.y);
}

cudaError_t chunk_y_done(const struct chunk *chunk, void *y, uint64_t stride) {
  return chunk->stays ? cudaSuccess : chunk_y_out(chunk, y, stride);
}

cudaError_t chunk_finish(struct chunk *chunk, const struct choice *choice, bool final) {
  const struct backend_job *job = chunk->job;
  const struct backend_weight *weight = chunk->weight;
  if (final) {
    struct chain rows = chunk_chain(chunk);
    chunk->v = chunk_staged(chunk, chunk->at.sums);
    chunk->v_stride = (uint64_t)weight->layout.n * gemm_type_bytes(job->y_type);
    return chunk->stays ? cudaSuccess
                        : chain_out(chunk->slot, &rows, chunk_staged(chunk, chunk->at.sums), chunk->v_stride);
  }
  bool scales = !choice->scaled && weight->weight.scale != GEMM_SCALE_NONE;
  struct epilogue epilogue = {
      .sums = chunk_staged(chunk, chunk->at.sums),
      .integers = choice->d_type == GEMM_S32,
      .sums_stride = weight->layout.n,
      .w_scale = scales ? (const float *)(const void *)weight->scales : NULL,
      .x_scale = scales ? chunk_staged(chunk, chunk->at.scales) : NULL,
      .bias = job->bias && !choice->biased ? chunk_staged(chunk, chunk->at.bias) : NULL,
      .bias_type = job->bias_type,
      .y_type = job->y_type,
      .m = chunk->rows,
      .n = weight->weight.n,
  };
  epilogue.y = chunk_y_target(chunk, &epilogue.y_stride);
  cudaError_t result = launch_epilogue(chunk->slot->stream, &epilogue);
  return result == cudaSuccess ? chunk_y_done(chunk, epilogue.y, epilogue.y_stride) : result;
}
