#include "chain.h"
#include "chunk.h"
#include "few.h"
#include "hopper.h"
#include "int2_few.h"
#include "int2_many.h"
#include "int2a8.h"
#include "launch.h"
#include "many.h"
#include "tensor_map.h"
#include "transfer.h"
#include "variants.h"

#include <string.h>

void *chunk_staged(const struct chunk *chunk, uint64_t offset) {
  const struct slot *slot = chunk->slot;
  return (void *)(uintptr_t)((slot->job.operand ? slot->operand.address : slot->staging.address) + offset);
}

static struct chain rows_of(const struct chunk *chunk) {
  return (struct chain){.jobs = &chunk->slot->job, .row = chunk->row, .rows = chunk->rows};
}

bool chunk_as_is(const struct backend_job *job) {
  return job->x_type == GEMM_INT8 || job->x_type == GEMM_E4M3 || job->weight->weight.format == GEMM_FORMAT_F16 ||
         job->weight->weight.format == GEMM_FORMAT_BF16;
}

/* ---- in */

/* Rows that already are what the product reads: copied behind each other, zeros between. */
static cudaError_t codes_in(const struct chunk *chunk) {
  const struct layout *layout = &chunk->weight->layout;
  const struct backend_job *job = chunk->job;
  cudaStream_t stream = chunk->slot->stream;
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
  struct chain rows = rows_of(chunk);
  return chain_in(chunk->slot, &rows, CHAIN_X, codes, layout->x_row_bytes);
}

static cudaError_t scales_in(const struct chunk *chunk) {
  bool block = chunk->weight->weight.scale == GEMM_SCALE_BLOCK;
  uint64_t columns = block ? (uint64_t)chunk->weight->layout.k / GEMM_GROUP : 1;
  void *device = chunk_staged(chunk, block ? chunk->at.scales_in : chunk->at.scales);
  struct chain rows = rows_of(chunk);
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
  struct chain rows = rows_of(chunk);
  struct row_table table, y;
  void **y_rows = job->next && !chunk->stays ? chunk_staged(chunk, chunk->at.y_rows) : NULL;
  *result = cudaSuccess;
  if (chunk->weight->weight.scale == GEMM_SCALE_BLOCK || (!job->next && chunk->rows > ROW_TABLE))
    return false;
  for (int64_t done = 0; done < chunk->rows && *result == cudaSuccess;) {
    int count = chain_table(&rows, CHAIN_X, done, &table);
    if (count == 0)
      return false;
    if (y_rows && chain_table(&rows, CHAIN_Y, done, &y) == 0)
      y_rows = NULL;
    *result =
        launch_quantize_table(chunk->slot->stream, &table, job->x_type, count, chunk->weight->weight.k, layout->k,
                              chunk->weight->weight.format == GEMM_FORMAT_FP8,
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
  void *x = chunk_staged(chunk, chunk->at.x), *codes = chunk_staged(chunk, chunk->at.codes);
  float *scales = chunk_staged(chunk, chunk->at.scales);
  if (weight->scale == GEMM_SCALE_BLOCK)
    return launch_quantize_blocks(chunk->slot->stream, x, job->x_type, chunk->rows, chunk->rows_padded, weight->k,
                                  layout->k, codes, scales);
  return launch_quantize_rows(chunk->slot->stream, x, job->x_type, chunk->rows, weight->k, layout->k,
                              weight->format == GEMM_FORMAT_FP8, codes, scales);
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
  uint64_t stride = weight->layout.layout == LAYOUT_TILES2 ? (uint64_t)weight->layout.k * element : row_bytes;
  uint8_t *x = chunk_staged(chunk, chunk->at.x);
  cudaError_t result = cudaSuccess;
  if (stride > row_bytes)
    result =
        cudaMemset2DAsync(x + row_bytes, stride, 0, stride - row_bytes, (uint64_t)chunk->rows, chunk->slot->stream);
  struct chain rows = rows_of(chunk);
  return result == cudaSuccess ? chain_in(chunk->slot, &rows, CHAIN_X, x, stride) : result;
}

static cudaError_t stage(struct chunk *chunk) {
  const struct backend_job *job = chunk->job;
  bool quantizes = gemm_quantizes_x(chunk->weight->weight.format);
  cudaError_t result = chunk->row == 0 && job->bias ? chunk_bias(chunk) : cudaSuccess;
  if (result != cudaSuccess)
    return result;
  if (chunk_as_is(job)) {
    result = codes_in(chunk);
    return result == cudaSuccess && job->x_scale && job->y_type != GEMM_S32 ? scales_in(chunk) : result;
  }
  if (quantizes && quantize_in_place(chunk, &result))
    return result;
  result = x_in(chunk);
  return result == cudaSuccess && quantizes ? quantize(chunk) : result;
}

enum status chunk_stage(struct chunk *chunk, struct error *error) {
  return runtime_check(stage(chunk), "copying x to the GPU", error);
}

bool chunk_quantizes(const struct chunk *chunk) {
  return !chunk_as_is(chunk->job) && gemm_quantizes_x(chunk->weight->weight.format);
}

enum status chunk_stage_bare(struct chunk *chunk, struct error *error) {
  if (!chunk_quantizes(chunk))
    return chunk_stage(chunk, error);
  cudaError_t result = chunk->row == 0 && chunk->job->bias ? chunk_bias(chunk) : cudaSuccess;
  return runtime_check(result == cudaSuccess ? x_in(chunk) : result, "copying x to the GPU", error);
}

enum status chunk_quantize_bare(const struct chunk *chunk, struct error *error) {
  return runtime_check(chunk_quantizes(chunk) ? quantize(chunk) : cudaSuccess, "quantizing x", error);
}

/* ---- out */

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
  struct chain rows = rows_of(chunk);
  return in_place(chunk) ? cudaSuccess : chain_out(chunk->slot, &rows, y, stride);
}

/* Where a kernel of ours writes what is to become y. */
static void *y_target(struct chunk *chunk, uint64_t *stride) {
  uint64_t row_bytes = (uint64_t)chunk->weight->weight.n * gemm_type_bytes(chunk->job->y_type);
  if (!chunk->stays)
    return chunk_y(chunk, chunk->at.y, row_bytes, stride);
  chunk->v = chunk_staged(chunk, chunk->at.y);
  chunk->v_stride = *stride = row_bytes;
  return chunk_staged(chunk, chunk->at.y);
}

static cudaError_t y_out(const struct chunk *chunk, void *y, uint64_t stride) {
  return chunk->stays ? cudaSuccess : chunk_y_out(chunk, y, stride);
}

static cudaError_t finish(struct chunk *chunk, const struct choice *choice, bool final) {
  const struct backend_job *job = chunk->job;
  const struct backend_weight *weight = chunk->weight;
  if (final) {
    struct chain rows = rows_of(chunk);
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
  epilogue.y = y_target(chunk, &epilogue.y_stride);
  cudaError_t result = launch_epilogue(chunk->slot->stream, &epilogue);
  return result == cudaSuccess ? y_out(chunk, epilogue.y, epilogue.y_stride) : result;
}

/* ---- between */

/* A few rows at a time. */
static enum status int2_few_run(struct chunk *chunk, struct error *error) {
  const struct backend_job *job = chunk->job;
  const struct backend_weight *weight = chunk->weight;
  struct int2_few_product product = {
      .n = weight->weight.n,
      .tiles = weight->codes,
      .x_type = job->x_type,
      .x_stride = (uint64_t)weight->layout.k * gemm_type_bytes(job->x_type),
      .bias = job->bias ? chunk_staged(chunk, chunk->at.bias) : NULL,
      .bias_type = job->bias_type,
      .y_type = job->y_type,
  };
  uint8_t *x = chunk_staged(chunk, chunk->at.x), *y = y_target(chunk, &product.y_stride);
  int64_t most = int2_few_rows_most(job->x_type);
  cudaError_t result = cudaSuccess;
  for (int64_t row = 0; row < chunk->rows && result == cudaSuccess; row += product.m) {
    product.m = chunk->rows - row < most ? chunk->rows - row : most;
    product.x = x + (uint64_t)row * product.x_stride;
    product.y = y + (uint64_t)row * product.y_stride;
    result = int2_few_launch(chunk->slot->stream, weight->few, &product, chunk->follows || row > 0);
  }
  if (result == cudaSuccess)
    result = y_out(chunk, y, product.y_stride);
  return runtime_check(result, "computing a product", error);
}

/* All rows at once. */
static enum status int2_many_run(struct backend *backend, struct chunk *chunk, const struct int2_many_config *config,
                                 const struct int2_many_plan *plan, struct error *error) {
  const struct backend_job *job = chunk->job;
  const struct backend_weight *weight = chunk->weight;
  struct int2_many_product product = {
      .m = chunk->rows,
      .n = weight->weight.n,
      .tiles = weight->codes,
      .x_type = job->x_type,
      .bias = job->bias ? chunk_staged(chunk, chunk->at.bias) : NULL,
      .bias_type = job->bias_type,
      .y_type = job->y_type,
      .sums = chunk->slot->int2_sums,
  };
  product.y = y_target(chunk, &product.y_stride);
  int64_t row_bytes = weight->layout.k * 2;
  CUtensorMap x;
  enum status status = tensor_map_make(backend->driver, chunk_staged(chunk, chunk->at.x), chunk->rows, row_bytes,
                                       row_bytes, config->columns, &x, error);
  if (status != STATUS_OK)
    return status;
  cudaError_t result = int2_many_launch(chunk->slot->stream, config, plan, &product, &x, chunk->follows);
  if (result == cudaSuccess)
    result = y_out(chunk, product.y, product.y_stride);
  return runtime_check(result, "computing a product", error);
}

static enum status int2_tiles_run(struct backend *backend, struct chunk *chunk, struct error *error) {
  const struct gemm_weight *weight = &chunk->weight->weight;
  int sms = backend->multiprocessors;
  struct int2_many_plan plan;
  if (chunk->rows >= int2_many_least(chunk->job->x_type, weight->k)) {
    struct int2_many_config config = int2_many_configure(chunk->rows, weight->n, weight->k, sms);
    if (int2_many_plan_for(&config, chunk->rows, weight->n, weight->k, sms, &plan))
      return int2_many_run(backend, chunk, &config, &plan, error);
  }
  return int2_few_run(chunk, error);
}

/* INT8 x, some rows at a time. */
static enum status int2a8_run(struct chunk *chunk, struct error *error) {
  const struct backend_job *job = chunk->job;
  const struct backend_weight *weight = chunk->weight;
  struct int2a8_product product = {
      .n = weight->weight.n,
      .tiles = weight->codes,
      .x_stride = (int64_t)weight->layout.x_row_bytes,
      .bias = job->bias ? chunk_staged(chunk, chunk->at.bias) : NULL,
      .bias_type = job->bias_type,
      .y_type = job->y_type,
  };
  const int8_t *x = chunk_staged(chunk, chunk->at.codes);
  const float *scales = chunk_staged(chunk, chunk->at.scales);
  uint8_t *y = y_target(chunk, &product.y_stride);
  cudaError_t result = cudaSuccess;
  for (int64_t row = 0; row < chunk->rows && result == cudaSuccess; row += product.m) {
    const struct int2a8_way *way = int2a8_way_for(weight->int2a8, chunk->rows - row);
    int64_t most = 8 * way->config.eights;
    product.m = chunk->rows - row < most ? chunk->rows - row : most;
    product.x = x + row * product.x_stride;
    product.x_scale = scales + row;
    product.y = y + (uint64_t)row * product.y_stride;
    result = int2a8_launch(chunk->slot->stream, way, &product, chunk->follows || row > 0);
  }
  if (result == cudaSuccess)
    result = y_out(chunk, y, product.y_stride);
  return runtime_check(result, "computing a product", error);
}

static enum status int2_run(struct chunk *chunk, struct error *error) {
  const struct backend_job *job = chunk->job;
  const struct backend_weight *weight = chunk->weight;
  bool quantizes = gemm_quantizes_x(weight->weight.format);
  struct int2_product product = {
      .x = chunk_staged(chunk, quantizes ? chunk->at.codes : chunk->at.x),
      .x_type = quantizes ? GEMM_INT8 : job->x_type,
      .x_stride = quantizes ? weight->layout.k : weight->weight.k,
      .x_scale = quantizes ? chunk_staged(chunk, chunk->at.scales) : NULL,
      .codes = weight->codes,
      .row_bytes = weight->layout.row_bytes,
      .scales = weight->scales,
      .scale_stride = (int64_t)weight->layout.scale_columns,
      .bias = job->bias ? chunk_staged(chunk, chunk->at.bias) : NULL,
      .bias_type = job->bias_type,
      .y_type = job->y_type,
      .m = chunk->rows,
      .n = weight->weight.n,
      .k = weight->weight.k,
  };
  product.y = y_target(chunk, &product.y_stride);
  cudaError_t result = launch_int2(chunk->slot->stream, &product);
  if (result == cudaSuccess)
    result = y_out(chunk, product.y, product.y_stride);
  return runtime_check(result, "computing a product", error);
}

static enum status plain_run(const struct chunk *chunk, struct error *error) {
  const struct backend_weight *weight = chunk->weight;
  bool block = weight->weight.scale == GEMM_SCALE_BLOCK;
  struct plain_product product = {
      .format = weight->weight.format,
      .m = chunk->rows_padded,
      .n = weight->layout.n,
      .k = weight->layout.k,
      .x = chunk_staged(chunk, chunk->at.codes),
      .w = weight->codes,
      .x_scale = block ? chunk_staged(chunk, chunk->at.scales) : NULL,
      .w_scale = block ? (const float *)(const void *)weight->scales : NULL,
      .x_scale_stride = chunk->rows_padded,
      .w_scale_stride = (int64_t)weight->layout.scale_row_bytes / 4,
      .sums = chunk_staged(chunk, chunk->at.sums),
  };
  return runtime_check(launch_plain(chunk->slot->stream, &product), "computing a product", error);
}

static struct library_product library_product(const struct chunk *chunk) {
  const struct backend_weight *weight = chunk->weight;
  return (struct library_product){
      .format = weight->weight.format,
      .n = weight->layout.n,
      .k = weight->layout.k,
      .m = chunk->rows_padded,
      .w = weight->codes,
      .x = chunk_staged(chunk, chunk->at.codes),
      .w_scale = (const float *)(const void *)weight->scales,
      .x_scale = chunk_staged(chunk, chunk->at.scales),
      .d = chunk_staged(chunk, chunk->at.sums),
      .bias = chunk_staged(chunk, chunk->at.bias),
  };
}

static enum status many_run(const struct backend *backend, const struct chunk *chunk, const struct many_config *config,
                            const struct hopper_product *product, struct error *error) {
  CUtensorMap w, x;
  enum status status = tensor_map_make(backend->driver, product->w, product->n, product->k, product->w_stride,
                                       config->columns, &w, error);
  if (status == STATUS_OK)
    status =
        tensor_map_make(backend->driver, product->x, product->m, product->k, product->x_stride, MANY_ROWS, &x, error);
  if (status != STATUS_OK)
    return status;
  return runtime_check(many_launch(chunk->slot->stream, config, product, &w, &x, backend->multiprocessors),
                       "computing a product", error);
}

/* Behind kernels of ours, W streams in while those still run: a thing of Hopper. */
static enum status own_launch(const struct backend *backend, const struct chunk *chunk, const struct choice *choice,
                              const struct hopper_product *product, struct error *error) {
  bool dependent = chunk->follows && backend->capability >= 90;
  cudaStream_t stream = chunk->slot->stream;
  if (choice->way == CHOICE_MANY)
    return many_run(backend, chunk, &choice->many, product, error);
  cudaError_t result = choice->way == CHOICE_FEW
                           ? few_launch(stream, &choice->few, product, backend->multiprocessors, dependent)
                           : hopper_launch(stream, &choice->hopper, product, dependent);
  return runtime_check(result, "computing a product", error);
}

static enum status own_run(struct backend *backend, struct chunk *chunk, const struct choice *choice,
                           struct error *error) {
  const struct backend_job *job = chunk->job;
  const struct backend_weight *weight = chunk->weight;
  const struct layout *layout = &weight->layout;
  bool scales = job->y_type != GEMM_S32;
  struct hopper_product product = {
      .format = weight->weight.format,
      .scale = weight->weight.scale,
      .m = chunk->rows,
      .n = weight->weight.n,
      .k = layout->k,
      .w = weight->codes,
      .x = chunk_staged(chunk, chunk->at.codes),
      .w_stride = (int64_t)layout->row_bytes,
      .x_stride = (int64_t)layout->row_bytes,
      .w_scale = scales ? (const float *)(const void *)weight->scales : NULL,
      .x_scale = scales ? chunk_staged(chunk, chunk->at.scales) : NULL,
      .w_scale_stride = (int64_t)layout->scale_row_bytes / 4,
      .x_scale_stride = chunk->rows_padded,
      .bias = job->bias ? chunk_staged(chunk, chunk->at.bias) : NULL,
      .bias_type = job->bias_type,
      .y_type = job->y_type,
  };
  product.y = y_target(chunk, &product.y_stride);
  product.y_rows = chunk->y_rows;
  enum status status = own_launch(backend, chunk, choice, &product, error);
  if (status != STATUS_OK || product.y_rows)
    return status;
  return runtime_check(y_out(chunk, product.y, product.y_stride), "computing a product", error);
}

static enum tile_type tile_type_of(enum gemm_type type) {
  switch (type) {
  case GEMM_F32:
    return TILE_F32;
  case GEMM_F16:
    return TILE_F16;
  case GEMM_BF16:
    return TILE_BF16;
  case GEMM_S32:
    return TILE_S32;
  default:
    return TILE_NONE;
  }
}

/* Slices' sums of the same place lie with those of other ways, where there are any; sums of their own and turns in the
 * workspace. */
static enum status tile_run(struct backend *backend, struct chunk *chunk, const struct variant *variant,
                            struct error *error) {
  const struct backend_job *job = chunk->job;
  const struct layout *layout = &chunk->weight->layout;
  const struct gemm_weight *weight = &chunk->weight->weight;
  const int32_t *values = variant->values;
  struct tile_problem problem = {.format = weight->format,
                                 .scale = weight->scale,
                                 .x_type = job->x_type,
                                 .tiled = layout_is_tiled(layout),
                                 .m = chunk->rows,
                                 .n = layout->n,
                                 .k = layout->k};
  struct tile_plan plan;
  enum status status = tile_plan(&backend->tiles.device, &problem, variant, &plan, error);
  if (status != STATUS_OK)
    return status;
  bool scales = job->y_type != GEMM_S32 && weight->scale != GEMM_SCALE_NONE, int2 = gemm_is_int2(weight->format);
  bool as_it_comes = weight->format == GEMM_FORMAT_INT2;
  uint64_t x_row_bytes = as_it_comes ? (uint64_t)layout->k * gemm_type_bytes(job->x_type) : layout->x_row_bytes;
  uint8_t *workspace = (uint8_t *)(uintptr_t)chunk->slot->workspace.address;
  uint64_t y_stride;
  struct tile_params params = {
      .x = chunk_staged(chunk, as_it_comes ? chunk->at.x : chunk->at.codes),
      .w = chunk->weight->codes,
      .x_stride = (long long)x_row_bytes,
      .w_stride = (long long)layout->row_bytes,
      .m = (int)chunk->rows,
      .n = (int)weight->n,
      .row_bytes = (int)x_row_bytes,
      .steps = (int)plan.steps,
      .w_scale = scales && !int2 ? (const float *)(const void *)chunk->weight->scales : NULL,
      .x_scale = scales && !as_it_comes ? chunk_staged(chunk, chunk->at.scales) : NULL,
      .bias = job->bias ? chunk_staged(chunk, chunk->at.bias) : NULL,
      .bias_type = tile_type_of(job->bias_type),
      .y_type = tile_type_of(job->y_type),
      .y = y_target(chunk, &y_stride),
      .tiles_m = (int)plan.tiles_m,
      .tiles_n = (int)plan.tiles_n,
      .group_size_m = values[TILE_GROUP_SIZE_M],
      .split_k = values[TILE_SPLIT_K],
      .split_k_mode = values[TILE_SPLIT_K_MODE],
      .sums = plan.sums_bytes > 0 ? workspace + plan.sums_offset : chunk_staged(chunk, chunk->at.sums),
      .sums_stride = layout->n,
      .turns = (int *)(void *)workspace,
  };
  params.y_stride = (long long)y_stride;
  const struct tile_code *code = (const struct tile_code *)(uintptr_t)variant->ready[0];
  status = tile_launch(&backend->tiles, code, &plan, &params, (CUstream)chunk->slot->stream, error);
  return status == STATUS_OK ? runtime_check(y_out(chunk, params.y, y_stride), "computing a product", error) : status;
}

/* The library may refuse an algorithm that it gave for the bucket's largest M: then it is asked about this very M, and
 * at last the plain kernel computes. */
static enum status way_run(struct backend *backend, struct chunk *chunk, const struct choice *choice,
                           const struct choice_request *request, struct error *error) {
  if (choice->way == CHOICE_HOPPER || choice->way == CHOICE_FEW || choice->way == CHOICE_MANY)
    return own_run(backend, chunk, choice, error);
  if (choice->way == CHOICE_TILE)
    return tile_run(backend, chunk, choice->tile, error);
  if (choice->way == CHOICE_PLAIN)
    return plain_run(chunk, error);
  struct library_product product = library_product(chunk);
  product.scale = choice->scale;
  product.d_type = choice->d_type;
  product.bias_type = choice->biased ? request->bias_type : GEMM_TYPE_NONE;
  return library_run(&backend->library, &product, &choice->algorithm, (void *)(uintptr_t)chunk->slot->workspace.address,
                     chunk->slot->stream, error);
}

static enum status product_run(struct backend *backend, struct chunk *chunk, struct error *error) {
  const struct backend_job *job = chunk->job;
  struct choice_request request = {
      .weight = &chunk->weight->weight,
      .n = chunk->weight->layout.n,
      .k = chunk->weight->layout.k,
      .m = chunk->rows_padded,
      .y_type = job->y_type,
      .bias_type = job->bias ? job->bias_type : GEMM_TYPE_NONE,
  };
  struct library_product operands = library_product(chunk);
  struct choice choice;
  enum status status = STATUS_UNSUPPORTED;
  if (cuda_variant_choice(job->variant, &request, &choice))
    status = way_run(backend, chunk, &choice, &request, error);
  for (int exact = 0; exact < 2 && status == STATUS_UNSUPPORTED; exact++) {
    choice = choice_find(backend->choices, &backend->library, &request, &operands, exact);
    status = way_run(backend, chunk, &choice, &request, error);
  }
  if (status == STATUS_UNSUPPORTED) {
    choice = choice_plain(&request);
    status = plain_run(chunk, error);
  }
  if (status != STATUS_OK || (choice.way != CHOICE_PLAIN && choice.way != CHOICE_LIBRARY))
    return status;
  return runtime_check(finish(chunk, &choice, choice_final(&choice, &request)), "finishing a product", error);
}

enum status chunk_compute(struct backend *backend, struct chunk *chunk, struct error *error) {
  const struct variant *variant = chunk->job->variant;
  if (gemm_is_int2(chunk->weight->weight.format) && variant && variant->family == &tile_family && variant->ready[0]) {
    enum status status = tile_run(backend, chunk, variant, error);
    if (status != STATUS_UNSUPPORTED)
      return status;
  }
  if (chunk->weight->layout.layout == LAYOUT_TILES2)
    return int2_tiles_run(backend, chunk, error);
  if (chunk->weight->layout.layout == LAYOUT_TILES2A8)
    return int2a8_run(chunk, error);
  return gemm_is_int2(chunk->weight->weight.format) ? int2_run(chunk, error) : product_run(backend, chunk, error);
}
