/* y on its way out. */
#include "chunk.h"

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

cudaError_t chunk_sums_done(struct chunk *chunk) {
  struct chain rows = chunk_chain(chunk);
  chunk->v = chunk_staged(chunk, chunk->at.sums);
  chunk->v_stride = (uint64_t)chunk->weight->layout.n * gemm_type_bytes(chunk->job->y_type);
  return chunk->stays ? cudaSuccess
                      : chain_out(chunk->slot, &rows, chunk_staged(chunk, chunk->at.sums), chunk->v_stride);
}
