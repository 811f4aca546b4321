#include "chunk.h"

#include "../launch/graph.h"
#include "../passes/input.h"
#include "../runtime/transfer.h"

void *chunk_staged(const struct chunk *chunk, uint64_t offset) {
  const struct slot *slot = chunk->slot;
  return (void *)(uintptr_t)((slot->job.operand ? slot->scratch : slot->staging.address) + offset);
}

/* Its rows of the slot's jobs. */
static struct chain chunk_chain(const struct chunk *chunk) {
  return (struct chain){.jobs = &chunk->slot->job, .row = chunk->row, .rows = chunk->rows};
}

bool chunk_as_is(const struct backend_job *job) {
  return job->x_type == GEMM_INT8 || job->x_type == GEMM_E4M3 || gemm_is_wide(job->weight->weight.format);
}

/* ---- x on its way in: copied or gathered to where the product reads it, and quantized */

/* Rows that already are what the product reads: copied behind each other, zeros between. */
static cudaError_t codes_in(const struct chunk *chunk) {
  const struct layout *layout = &chunk->weight->layout;
  const struct backend_job *job = chunk->job;
  cudaStream_t stream = graph_stream(chunk->slot);
  uint8_t *codes = chunk_staged(chunk, chunk->at.codes);
  uint64_t row_bytes = (uint64_t)chunk->weight->weight.k * gemm_type_bytes(job->x_type);
  cudaError_t result = cudaSuccess;
  if (row_bytes < layout->x_row_bytes)
    result = cudaMemset2DAsync(codes + row_bytes, layout->x_row_bytes, 0, layout->x_row_bytes - row_bytes,
                               (uint64_t)chunk->rows, stream);
  if (result == cudaSuccess && chunk->rows_padded > chunk->rows)
    result = cudaMemsetAsync(codes + (uint64_t)chunk->rows * layout->x_row_bytes, 0,
                             (uint64_t)(chunk->rows_padded - chunk->rows) * layout->x_row_bytes, stream);
  if (result != cudaSuccess)
    return result;
  struct chain rows = chunk_chain(chunk);
  return chain_in(chunk->slot, &rows, CHAIN_X, codes, layout->x_row_bytes);
}

static cudaError_t scales_in(const struct chunk *chunk) {
  bool block = chunk->weight->weight.scale == GEMM_SCALE_BLOCK;
  uint64_t columns = block ? (uint64_t)chunk->weight->layout.k / GEMM_GROUP : 1;
  void *device = chunk_staged(chunk, block ? chunk->at.scales_in : chunk->at.scales);
  struct chain rows = chunk_chain(chunk);
  cudaError_t result = chain_in(chunk->slot, &rows, CHAIN_X_SCALES, device, 4 * columns);
  if (result != cudaSuccess || !block)
    return result;
  return launch_scales_transpose(chunk->slot->stream, device, chunk->rows, chunk->rows_padded, (int64_t)columns,
                                 chunk_staged(chunk, chunk->at.scales));
}

/* Few rows are quantized where they lie in mapped memory, which saves the copy. False where that cannot be. */
static bool quantize_in_place(struct chunk *chunk, cudaError_t *result) {
  const struct backend_job *job = chunk->job;
  const struct layout *layout = &chunk->weight->layout;
  struct chain rows = chunk_chain(chunk);
  struct row_table table, y;
  void **y_rows = job->next && !chunk->stays ? chunk_staged(chunk, chunk->at.y_rows) : NULL;
  *result = cudaSuccess;
  if (chunk->weight->weight.scale == GEMM_SCALE_BLOCK || chunk->weight->weight.input ||
      (!job->next && chunk->rows > ROW_TABLE))
    return false;
  for (int64_t done = 0; done < chunk->rows && *result == cudaSuccess;) {
    int count = chain_table(&rows, CHAIN_X, done, &table);
    if (count == 0)
      return false;
    if (y_rows && chain_table(&rows, CHAIN_Y, done, &y) == 0)
      y_rows = NULL;
    *result =
        launch_quantize_table(chunk->slot->stream, &table, job->x_type, count, chunk->weight->weight.k, layout->k,
                              gemm_format_facts(chunk->weight->weight.format)->codes == GEMM_E4M3,
                              (uint8_t *)chunk_staged(chunk, chunk->at.codes) + (uint64_t)done * layout->x_row_bytes,
                              (float *)chunk_staged(chunk, chunk->at.scales) + done, &y, y_rows ? y_rows + done : NULL);
    done += count;
  }
  chunk->y_rows = y_rows;
  return true;
}

static cudaError_t quantize(const struct chunk *chunk) {
  const struct backend_job *job = chunk->job;
  const struct gemm_weight *weight = &chunk->weight->weight;
  const struct layout *layout = &chunk->weight->layout;
  const struct quantize_pass pass = {.x = chunk_staged(chunk, chunk->at.x),
                                     .x_type = job->x_type,
                                     .x_stride = weight->k * (int64_t)gemm_type_bytes(job->x_type),
                                     .rows = chunk->rows,
                                     .rows_padded = chunk->rows_padded,
                                     .k = weight->k,
                                     .k_padded = layout->k,
                                     .e4m3 = gemm_format_facts(weight->format)->codes == GEMM_E4M3,
                                     .codes = chunk_staged(chunk, chunk->at.codes),
                                     .scales = chunk_staged(chunk, chunk->at.scales),
                                     .input = chunk->weight->input};
  return weight->scale == GEMM_SCALE_BLOCK ? launch_quantize_blocks(chunk->slot->stream, &pass)
                                           : launch_quantize_input(chunk->slot->stream, &pass);
}

/* Rows that are not quantized, in the weight's order. */
static cudaError_t reorder(const struct chunk *chunk) {
  const struct gemm_weight *weight = &chunk->weight->weight;
  const struct order_pass pass = {.x = chunk_staged(chunk, chunk->at.x),
                                  .type = chunk->job->x_type,
                                  .x_stride = (uint64_t)weight->k * gemm_type_bytes(chunk->job->x_type),
                                  .rows = chunk->rows,
                                  .k = weight->k,
                                  .columns = layout_x_columns(weight, &chunk->weight->layout),
                                  .order = chunk->weight->input.order,
                                  .to = chunk_staged(chunk, chunk->at.ordered)};
  return launch_order(chunk->slot->stream, &pass);
}

cudaError_t chunk_input(const struct chunk *chunk) {
  return gemm_quantizes_x(chunk->weight->weight.format) ? quantize(chunk) : reorder(chunk);
}

cudaError_t chunk_bias(const struct chunk *chunk) {
  const struct backend_job *job = chunk->job;
  struct rows rows = {
      .row_bytes = (uint64_t)chunk->weight->weight.n * gemm_type_bytes(job->bias_type),
      .rows = 1,
      .device = chunk_staged(chunk, chunk->at.bias),
      .host = (void *)(uintptr_t)job->bias,
  };
  return transfer_in(chunk->slot, job->arena, &rows);
}

/* Rows as they come; those of tiled INT2 products long enough for whole groups, zeros behind K. */
static cudaError_t x_in(const struct chunk *chunk) {
  const struct backend_weight *weight = chunk->weight;
  uint64_t element = gemm_type_bytes(chunk->job->x_type), row_bytes = (uint64_t)weight->weight.k * element;
  bool kept = layout_keeps_x(&weight->weight) && weight->weight.input == 0;
  uint64_t stride = kept ? (uint64_t)layout_x_columns(&weight->weight, &weight->layout) * element : row_bytes;
  uint8_t *x = chunk_staged(chunk, chunk->at.x);
  cudaError_t result = cudaSuccess;
  if (stride > row_bytes)
    result = cudaMemset2DAsync(x + row_bytes, stride, 0, stride - row_bytes, (uint64_t)chunk->rows,
                               graph_stream(chunk->slot));
  struct chain rows = chunk_chain(chunk);
  return result == cudaSuccess ? chain_in(chunk->slot, &rows, CHAIN_X, x, stride) : result;
}

/* What the product reads is made on the device of x as it comes. */
static bool made_of_x(const struct chunk *chunk) {
  return !chunk_as_is(chunk->job) &&
         (chunk->weight->weight.input != 0 || gemm_quantizes_x(chunk->weight->weight.format));
}

static cudaError_t stage(struct chunk *chunk) {
  const struct backend_job *job = chunk->job;
  bool quantizes = gemm_quantizes_x(chunk->weight->weight.format);
  cudaError_t result = chunk->row == chunk->slot->first_row && job->bias ? chunk_bias(chunk) : cudaSuccess;
  if (result != cudaSuccess)
    return result;
  if (chunk_as_is(job)) {
    result = codes_in(chunk);
    return result == cudaSuccess && job->x_scale && job->y_type != GEMM_S32 ? scales_in(chunk) : result;
  }
  if (quantizes && quantize_in_place(chunk, &result))
    return result;
  result = x_in(chunk);
  return result == cudaSuccess && made_of_x(chunk) ? chunk_input(chunk) : result;
}

enum status chunk_stage(struct chunk *chunk, struct error *error) {
  return runtime_check(stage(chunk), "copying x to the GPU", error);
}

bool chunk_quantizes(const struct chunk *chunk) {
  return made_of_x(chunk);
}

enum status chunk_stage_bare(struct chunk *chunk, struct error *error) {
  if (!chunk_quantizes(chunk))
    return chunk_stage(chunk, error);
  cudaError_t result = chunk->row == 0 && chunk->job->bias ? chunk_bias(chunk) : cudaSuccess;
  return runtime_check(result == cudaSuccess ? x_in(chunk) : result, "copying x to the GPU", error);
}

enum status chunk_quantize_bare(const struct chunk *chunk, struct error *error) {
  return runtime_check(chunk_quantizes(chunk) ? chunk_input(chunk) : cudaSuccess, "quantizing x", error);
}

/* ---- y on its way out */

static const struct backend_arena *y_memory(const struct backend_job *job) {
  return job->y_memory ? job->y_memory : job->arena;
}

/* Not so many rows by packed codes, which come in runs of a few bytes each: those go faster as one copy. */
static bool in_place(const struct chunk *chunk) {
  const struct backend_job *whole = &chunk->slot->job;
  return !whole->next && y_memory(whole)->device && (!gemm_is_packed(chunk->weight->weight.format) || chunk->rows <= 4);
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
