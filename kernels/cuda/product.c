#include "chain.h"
#include "hopper.h"
#include "int2_few.h"
#include "launch.h"
#include "staging.h"
#include "transfer.h"
#include "variants.h"

#include <string.h>

/* Chunks queued at a time: the driver's queue is bounded, and a submit that fills it would wait for the device. */
enum { CHUNKS_AHEAD = 16 };

/* One run of rows of a job, and where it lies. */
struct chunk {
  struct slot *slot;
  const struct backend_weight *weight;
  struct staging at;
  int64_t row, rows, rows_padded;
  /* For the clock alone: y stays on the device. */
  bool stays;
  bool dependent; /* the product may begin before the kernel ahead of it has ended */
};

static void *staged(const struct chunk *chunk, uint64_t offset) {
  return (void *)(uintptr_t)(chunk->slot->staging.address + offset);
}

static struct chain rows_of(const struct chunk *chunk) {
  return (struct chain){.jobs = &chunk->slot->job, .row = chunk->row, .rows = chunk->rows};
}

static bool as_is(const struct backend_job *job) {
  return job->x_type == GEMM_INT8 || job->x_type == GEMM_E4M3 || job->weight->weight.format == GEMM_FORMAT_F16 ||
         job->weight->weight.format == GEMM_FORMAT_BF16;
}

/* ---- in */

/* Rows that already are what the product reads: copied behind each other, zeros between. */
static cudaError_t codes_in(const struct chunk *chunk) {
  const struct layout *layout = &chunk->weight->layout;
  const struct backend_job *job = &chunk->slot->job;
  cudaStream_t stream = chunk->slot->stream;
  uint8_t *codes = staged(chunk, chunk->at.codes);
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
  void *device = staged(chunk, block ? chunk->at.scales_in : chunk->at.scales);
  struct chain rows = rows_of(chunk);
  cudaError_t result = chain_in(chunk->slot, &rows, CHAIN_X_SCALES, device, 4 * columns);
  if (result != cudaSuccess || !block)
    return result;
  return launch_scales_transpose(chunk->slot->stream, device, chunk->rows, chunk->rows_padded, (int64_t)columns,
                                 staged(chunk, chunk->at.scales));
}

/* Few rows are quantized where they lie in mapped memory, which saves the copy. False where that cannot be. */
static bool quantize_in_place(const struct chunk *chunk, cudaError_t *result) {
  const struct backend_job *job = &chunk->slot->job;
  const struct layout *layout = &chunk->weight->layout;
  struct chain rows = rows_of(chunk);
  struct row_table table;
  *result = cudaSuccess;
  if (chunk->weight->weight.scale == GEMM_SCALE_BLOCK || (!job->next && chunk->rows > ROW_TABLE))
    return false;
  for (int64_t done = 0; done < chunk->rows && *result == cudaSuccess;) {
    int count = chain_table(&rows, CHAIN_X, done, &table);
    if (count == 0)
      return false;
    *result = launch_quantize_table(chunk->slot->stream, &table, job->x_type, count, chunk->weight->weight.k, layout->k,
                                    chunk->weight->weight.format == GEMM_FORMAT_FP8,
                                    (uint8_t *)staged(chunk, chunk->at.codes) + (uint64_t)done * layout->x_row_bytes,
                                    (float *)staged(chunk, chunk->at.scales) + done);
    done += count;
  }
  return true;
}

static cudaError_t quantize(const struct chunk *chunk) {
  const struct backend_job *job = &chunk->slot->job;
  const struct gemm_weight *weight = &chunk->weight->weight;
  const struct layout *layout = &chunk->weight->layout;
  void *x = staged(chunk, chunk->at.x), *codes = staged(chunk, chunk->at.codes);
  float *scales = staged(chunk, chunk->at.scales);
  if (weight->scale == GEMM_SCALE_BLOCK)
    return launch_quantize_blocks(chunk->slot->stream, x, job->x_type, chunk->rows, chunk->rows_padded, weight->k,
                                  layout->k, codes, scales);
  return launch_quantize_rows(chunk->slot->stream, x, job->x_type, chunk->rows, weight->k, layout->k,
                              weight->format == GEMM_FORMAT_FP8, codes, scales);
}

static cudaError_t bias_in(const struct chunk *chunk) {
  const struct backend_job *job = &chunk->slot->job;
  struct rows rows = {
      .row_bytes = (uint64_t)chunk->weight->weight.n * gemm_type_bytes(job->bias_type),
      .rows = 1,
      .device = staged(chunk, chunk->at.bias),
      .host = (void *)(uintptr_t)job->bias,
  };
  return transfer_in(chunk->slot, job->arena, &rows);
}

/* Rows as they come; those of tiled INT2 products long enough for whole groups, zeros behind K. */
static cudaError_t x_in(const struct chunk *chunk) {
  const struct backend_weight *weight = chunk->weight;
  uint64_t element = gemm_type_bytes(chunk->slot->job.x_type), row_bytes = (uint64_t)weight->weight.k * element;
  uint64_t stride = weight->layout.layout == LAYOUT_TILES2 ? (uint64_t)weight->layout.k * element : row_bytes;
  uint8_t *x = staged(chunk, chunk->at.x);
  cudaError_t result = cudaSuccess;
  if (stride > row_bytes)
    result =
        cudaMemset2DAsync(x + row_bytes, stride, 0, stride - row_bytes, (uint64_t)chunk->rows, chunk->slot->stream);
  struct chain rows = rows_of(chunk);
  return result == cudaSuccess ? chain_in(chunk->slot, &rows, CHAIN_X, x, stride) : result;
}

static cudaError_t stage(const struct chunk *chunk) {
  const struct backend_job *job = &chunk->slot->job;
  bool quantizes = gemm_quantizes_x(chunk->weight->weight.format);
  cudaError_t result = chunk->row == 0 && job->bias ? bias_in(chunk) : cudaSuccess;
  if (result != cudaSuccess)
    return result;
  if (as_is(job)) {
    result = codes_in(chunk);
    return result == cudaSuccess && job->x_scale && job->y_type != GEMM_S32 ? scales_in(chunk) : result;
  }
  if (quantizes && quantize_in_place(chunk, &result))
    return result;
  result = x_in(chunk);
  return result == cudaSuccess && quantizes ? quantize(chunk) : result;
}

/* ---- out */

/* A kernel of ours writes y where it belongs if the device can reach it and it belongs to one job. Not so many rows of
 * INT2, which come in runs of a few bytes each: those go faster as one copy. */
static bool in_place(const struct chunk *chunk) {
  const struct backend_job *job = &chunk->slot->job;
  return !chunk->stays && !job->next && job->arena->device &&
         (!gemm_is_int2(chunk->weight->weight.format) || chunk->rows <= 4);
}

static void *y_target(const struct chunk *chunk, uint64_t *stride) {
  const struct backend_job *job = &chunk->slot->job;
  if (in_place(chunk)) {
    *stride = job->y_stride;
    return job->arena->device + ((uint8_t *)job->y - job->arena->base) + (uint64_t)chunk->row * job->y_stride;
  }
  *stride = (uint64_t)chunk->weight->weight.n * gemm_type_bytes(job->y_type);
  return staged(chunk, chunk->at.y);
}

static cudaError_t y_out(const struct chunk *chunk) {
  uint64_t stride;
  if (chunk->stays || in_place(chunk))
    return cudaSuccess;
  struct chain rows = rows_of(chunk);
  void *target = y_target(chunk, &stride);
  return chain_out(chunk->slot, &rows, target, stride);
}

static cudaError_t finish(const struct chunk *chunk, const struct choice *choice, bool final) {
  const struct backend_job *job = &chunk->slot->job;
  const struct backend_weight *weight = chunk->weight;
  if (final && chunk->stays)
    return cudaSuccess;
  if (final) {
    uint64_t stride = (uint64_t)weight->layout.n * gemm_type_bytes(job->y_type);
    struct chain rows = rows_of(chunk);
    return chain_out(chunk->slot, &rows, staged(chunk, chunk->at.sums), stride);
  }
  bool scales = !choice->scaled && weight->weight.scale != GEMM_SCALE_NONE;
  struct epilogue epilogue = {
      .sums = staged(chunk, chunk->at.sums),
      .integers = choice->d_type == GEMM_S32,
      .sums_stride = weight->layout.n,
      .w_scale = scales ? (const float *)(const void *)weight->scales : NULL,
      .x_scale = scales ? staged(chunk, chunk->at.scales) : NULL,
      .bias = job->bias && !choice->biased ? staged(chunk, chunk->at.bias) : NULL,
      .bias_type = job->bias_type,
      .y_type = job->y_type,
      .m = chunk->rows,
      .n = weight->weight.n,
  };
  epilogue.y = y_target(chunk, &epilogue.y_stride);
  cudaError_t result = launch_epilogue(chunk->slot->stream, &epilogue);
  return result == cudaSuccess ? y_out(chunk) : result;
}

/* ---- between */

/* A few rows at a time. */
static enum status int2_tiles_run(const struct chunk *chunk, struct error *error) {
  const struct backend_job *job = &chunk->slot->job;
  const struct backend_weight *weight = chunk->weight;
  struct int2_few_product product = {
      .n = weight->weight.n,
      .tiles = weight->codes,
      .x_type = job->x_type,
      .x_stride = (uint64_t)weight->layout.k * gemm_type_bytes(job->x_type),
      .bias = job->bias ? staged(chunk, chunk->at.bias) : NULL,
      .bias_type = job->bias_type,
      .y_type = job->y_type,
  };
  uint8_t *x = staged(chunk, chunk->at.x), *y = y_target(chunk, &product.y_stride);
  int64_t most = int2_few_rows_most(job->x_type);
  cudaError_t result = cudaSuccess;
  for (int64_t row = 0; row < chunk->rows && result == cudaSuccess; row += product.m) {
    product.m = chunk->rows - row < most ? chunk->rows - row : most;
    product.x = x + (uint64_t)row * product.x_stride;
    product.y = y + (uint64_t)row * product.y_stride;
    result = int2_few_launch(chunk->slot->stream, weight->few, &product);
  }
  if (result == cudaSuccess)
    result = y_out(chunk);
  return runtime_check(result, "computing a product", error);
}

static enum status int2_run(const struct chunk *chunk, struct error *error) {
  const struct backend_job *job = &chunk->slot->job;
  const struct backend_weight *weight = chunk->weight;
  bool quantizes = gemm_quantizes_x(weight->weight.format);
  struct int2_product product = {
      .x = staged(chunk, quantizes ? chunk->at.codes : chunk->at.x),
      .x_type = quantizes ? GEMM_INT8 : job->x_type,
      .x_stride = quantizes ? weight->layout.k : weight->weight.k,
      .x_scale = quantizes ? staged(chunk, chunk->at.scales) : NULL,
      .codes = weight->codes,
      .row_bytes = weight->layout.row_bytes,
      .scales = weight->scales,
      .scale_stride = (int64_t)weight->layout.scale_columns,
      .bias = job->bias ? staged(chunk, chunk->at.bias) : NULL,
      .bias_type = job->bias_type,
      .y_type = job->y_type,
      .m = chunk->rows,
      .n = weight->weight.n,
      .k = weight->weight.k,
  };
  product.y = y_target(chunk, &product.y_stride);
  cudaError_t result = launch_int2(chunk->slot->stream, &product);
  if (result == cudaSuccess)
    result = y_out(chunk);
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
      .x = staged(chunk, chunk->at.codes),
      .w = weight->codes,
      .x_scale = block ? staged(chunk, chunk->at.scales) : NULL,
      .w_scale = block ? (const float *)(const void *)weight->scales : NULL,
      .x_scale_stride = chunk->rows_padded,
      .w_scale_stride = (int64_t)weight->layout.scale_row_bytes / 4,
      .sums = staged(chunk, chunk->at.sums),
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
      .x = staged(chunk, chunk->at.codes),
      .w_scale = (const float *)(const void *)weight->scales,
      .x_scale = staged(chunk, chunk->at.scales),
      .d = staged(chunk, chunk->at.sums),
      .bias = staged(chunk, chunk->at.bias),
  };
}

static enum status hopper_run(const struct chunk *chunk, const struct choice *choice, struct error *error) {
  const struct backend_job *job = &chunk->slot->job;
  const struct backend_weight *weight = chunk->weight;
  const struct layout *layout = &weight->layout;
  bool scales = job->y_type != GEMM_S32, quantized = !as_is(job) && !chunk->stays;
  bool dependent = quantized || chunk->dependent;
  struct hopper_product product = {
      .format = weight->weight.format,
      .scale = weight->weight.scale,
      .m = chunk->rows,
      .n = weight->weight.n,
      .k = layout->k,
      .w = weight->codes,
      .x = staged(chunk, chunk->at.codes),
      .w_stride = (int64_t)layout->row_bytes,
      .x_stride = (int64_t)layout->row_bytes,
      .w_scale = scales ? (const float *)(const void *)weight->scales : NULL,
      .x_scale = scales ? staged(chunk, chunk->at.scales) : NULL,
      .w_scale_stride = (int64_t)layout->scale_row_bytes / 4,
      .x_scale_stride = chunk->rows_padded,
      .bias = job->bias ? staged(chunk, chunk->at.bias) : NULL,
      .bias_type = job->bias_type,
      .y_type = job->y_type,
  };
  product.y = y_target(chunk, &product.y_stride);
  /* Behind our quantizer, W streams in while that still runs. */
  cudaError_t result = hopper_launch(chunk->slot->stream, &choice->hopper, &product, dependent);
  if (result == cudaSuccess)
    result = y_out(chunk);
  return runtime_check(result, "computing a product", error);
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

/* Slices' sums of the same place lie with those of other ways; sums of their own and turns in the workspace. */
static enum status tile_run(struct backend *backend, const struct chunk *chunk, const struct choice *choice,
                            struct error *error) {
  const struct backend_job *job = &chunk->slot->job;
  const struct layout *layout = &chunk->weight->layout;
  const struct gemm_weight *weight = &chunk->weight->weight;
  const int32_t *values = choice->tile->values;
  struct tile_problem problem = {
      .format = weight->format, .scale = weight->scale, .m = chunk->rows, .n = layout->n, .k = layout->k};
  struct tile_plan plan;
  enum status status = tile_plan(&backend->tiles.device, &problem, choice->tile, &plan, error);
  if (status != STATUS_OK)
    return status;
  bool scales = job->y_type != GEMM_S32 && weight->scale != GEMM_SCALE_NONE;
  void *workspace = (void *)(uintptr_t)chunk->slot->workspace.address;
  uint64_t y_stride;
  struct tile_params params = {
      .x = staged(chunk, chunk->at.codes),
      .w = chunk->weight->codes,
      .x_stride = (long long)layout->row_bytes,
      .w_stride = (long long)layout->row_bytes,
      .m = (int)chunk->rows,
      .n = (int)weight->n,
      .row_bytes = (int)layout->row_bytes,
      .steps = (int)plan.steps,
      .w_scale = scales ? (const float *)(const void *)chunk->weight->scales : NULL,
      .x_scale = scales ? staged(chunk, chunk->at.scales) : NULL,
      .bias = job->bias ? staged(chunk, chunk->at.bias) : NULL,
      .bias_type = tile_type_of(job->bias_type),
      .y_type = tile_type_of(job->y_type),
      .y = y_target(chunk, &y_stride),
      .tiles_m = (int)plan.tiles_m,
      .tiles_n = (int)plan.tiles_n,
      .group_size_m = values[TILE_GROUP_SIZE_M],
      .split_k = values[TILE_SPLIT_K],
      .split_k_mode = values[TILE_SPLIT_K_MODE],
      .sums = plan.sums_bytes > 0 ? workspace : staged(chunk, chunk->at.sums),
      .sums_stride = layout->n,
      .turns = workspace,
  };
  params.y_stride = (long long)y_stride;
  const struct tile_code *code = (const struct tile_code *)(uintptr_t)choice->tile->ready[0];
  status = tile_launch(&backend->tiles, code, &plan, &params, (CUstream)chunk->slot->stream, error);
  return status == STATUS_OK ? runtime_check(y_out(chunk), "computing a product", error) : status;
}

/* The library may refuse an algorithm that it gave for the bucket's largest M: then it is asked about this very M, and
 * at last the plain kernel computes. */
static enum status way_run(struct backend *backend, const struct chunk *chunk, const struct choice *choice,
                           const struct choice_request *request, struct error *error) {
  if (choice->way == CHOICE_HOPPER)
    return hopper_run(chunk, choice, error);
  if (choice->way == CHOICE_TILE)
    return tile_run(backend, chunk, choice, error);
  if (choice->way == CHOICE_PLAIN)
    return plain_run(chunk, error);
  struct library_product product = library_product(chunk);
  product.scale = choice->scale;
  product.d_type = choice->d_type;
  product.bias_type = choice->biased ? request->bias_type : GEMM_TYPE_NONE;
  return library_run(&backend->library, &product, &choice->algorithm, (void *)(uintptr_t)chunk->slot->workspace.address,
                     chunk->slot->stream, error);
}

static enum status product_run(struct backend *backend, const struct chunk *chunk, struct error *error) {
  const struct backend_job *job = &chunk->slot->job;
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
  if (status != STATUS_OK || choice.way == CHOICE_HOPPER || choice.way == CHOICE_TILE)
    return status;
  return runtime_check(finish(chunk, &choice, choice_final(&choice, &request)), "finishing a product", error);
}

/* What is staged, by the kernel of the weight's layout. */
static enum status compute(struct backend *backend, const struct chunk *chunk, struct error *error) {
  if (chunk->weight->layout.layout == LAYOUT_TILES2)
    return int2_tiles_run(chunk, error);
  return gemm_is_int2(chunk->weight->weight.format) ? int2_run(chunk, error) : product_run(backend, chunk, error);
}

static enum status chunk_queue(struct backend *backend, const struct chunk *chunk, struct error *error) {
  enum status status = runtime_check(stage(chunk), "copying x to the GPU", error);
  return status == STATUS_OK ? compute(backend, chunk, error) : status;
}

/* ---- for the clock */

/* The product alone, as a graph of so many launches: what the host does for each is not in it. */
static enum status launches_capture(struct backend *backend, struct chunk *chunk, struct backend_weight *const *weights,
                                    size_t count, const struct backend_timing *timing, cudaGraphExec_t *out,
                                    struct error *error) {
  cudaStream_t stream = chunk->slot->stream;
  cudaGraph_t graph = NULL;
  enum status status =
      runtime_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing a product", error);
  if (status != STATUS_OK)
    return status;
  for (uint32_t i = 0; i < timing->launches && status == STATUS_OK; i++) {
    chunk->weight = weights[i % count];
    if (timing->quantize)
      status = runtime_check(quantize(chunk), "quantizing x", error);
    if (status == STATUS_OK)
      status = compute(backend, chunk, error);
  }
  enum status ended = runtime_check(cudaStreamEndCapture(stream, &graph), "capturing a product", error);
  status = status == STATUS_OK ? ended : status;
  if (status == STATUS_OK)
    status = runtime_check(cudaGraphInstantiate(out, graph, 0), "capturing a product", error);
  if (graph)
    (void)cudaGraphDestroy(graph);
  return status;
}

static enum status launches_time(struct slot *slot, cudaGraphExec_t graph, uint32_t launches, uint64_t *ns,
                                 struct error *error) {
  cudaEvent_t begin = NULL, end = NULL;
  float milliseconds = 0;
  cudaError_t result = cudaEventCreate(&begin);
  if (result == cudaSuccess)
    result = cudaEventCreate(&end);
  if (result == cudaSuccess)
    result = cudaGraphUpload(graph, slot->stream);
  if (result == cudaSuccess)
    result = cudaEventRecord(begin, slot->stream);
  if (result == cudaSuccess)
    result = cudaGraphLaunch(graph, slot->stream);
  if (result == cudaSuccess)
    result = cudaEventRecord(end, slot->stream);
  if (result == cudaSuccess)
    result = cudaEventSynchronize(end);
  if (result == cudaSuccess)
    result = cudaEventElapsedTime(&milliseconds, begin, end);
  if (begin)
    (void)cudaEventDestroy(begin);
  if (end)
    (void)cudaEventDestroy(end);
  *ns = (uint64_t)((double)milliseconds * 1e6 / launches);
  return runtime_check(result, "timing a product", error);
}

enum status cuda_measure(struct backend *backend, const struct backend_job *job, struct backend_weight *const *weights,
                         size_t count, const struct backend_timing *timing, uint64_t *ns, struct error *error) {
  bool quantizes = timing->quantize && !as_is(job) && gemm_quantizes_x(job->weight->weight.format);
  const struct backend_timing each = {.launches = timing->launches, .quantize = quantizes};
  struct slot *slot = &backend->slots[0];
  const struct backend_weight *weight = job->weight;
  struct chunk chunk = {.slot = slot, .weight = weight, .stays = true, .dependent = timing->dependent || quantizes};
  cudaGraphExec_t graph = NULL;
  slot->job = *job;
  slot->rows = job->m;
  chunk.rows = job->m < weight->rows_most ? job->m : weight->rows_most;
  chunk.rows_padded = staging_pad(&weight->weight, chunk.rows);
  chunk.at = staging_place(&weight->weight, &weight->layout, chunk.rows);
  enum status status = backend_enter(backend, error);
  if (status == STATUS_OK)
    status = runtime_check(stage(&chunk), "copying x to the GPU", error);
  if (status == STATUS_OK && quantizes)
    status = runtime_check(x_in(&chunk), "copying x to the GPU", error);
  if (status == STATUS_OK)
    status = launches_capture(backend, &chunk, weights, count, &each, &graph, error);
  if (status == STATUS_OK)
    status = launches_time(slot, graph, each.launches, ns, error);
  if (graph)
    (void)cudaGraphExecDestroy(graph);
  /* Products of many rows are computed in several goes of as many as fit. */
  *ns = *ns * (uint64_t)((job->m + chunk.rows - 1) / chunk.rows);
  return status;
}

/* ---- slots */

/* Queues the next chunks of a slot's job, and behind them a write of the word that poll looks at. What fails once
 * something is queued is reported by poll, when the device has let go of the job's memory. */
static enum status slot_advance(struct backend *backend, struct slot *slot, struct error *error) {
  const struct backend_weight *weight = slot->job.weight;
  int64_t rows_most = slot->rows < weight->rows_most ? slot->rows : weight->rows_most;
  struct chunk chunk = {.slot = slot, .weight = weight};
  chunk.at = staging_place(&weight->weight, &weight->layout, rows_most);
  for (int i = 0; i < CHUNKS_AHEAD && slot->next_row < slot->rows && slot->status == STATUS_OK; i++) {
    chunk.row = slot->next_row;
    chunk.rows = slot->rows - chunk.row < rows_most ? slot->rows - chunk.row : rows_most;
    chunk.rows_padded = staging_pad(&weight->weight, chunk.rows);
    slot->status = chunk_queue(backend, &chunk, error);
    slot->next_row += chunk.rows;
  }
  slot->sequence++;
  slot->looked_ns = backend_clock_ns();
  CUresult result = backend->driver->cuStreamWriteValue32_v2(slot->stream, slot->word_device, slot->sequence, 0);
  enum status status = driver_check(backend->driver, result, "starting a product", error);
  if (slot->status == STATUS_OK)
    slot->status = status;
  return status;
}

static enum status job_check(const struct backend_job *job, struct error *error) {
  const struct gemm_weight *weight = &job->weight->weight;
  if (job->m < 1)
    return error_field(error, STATUS_INVALID, FIELD_M, job->m, 1, INT64_MAX);
  if (!gemm_takes_x(weight->format, job->x_type))
    return error_field(error, STATUS_UNSUPPORTED, FIELD_X_TYPE, job->x_type, 1, 0);
  if (!gemm_takes_y(weight->format, job->x_type, job->y_type))
    return error_field(error, STATUS_UNSUPPORTED, FIELD_Y_TYPE, job->y_type, 1, 0);
  bool codes = job->x_type == GEMM_INT8 || job->x_type == GEMM_E4M3;
  if (codes && job->y_type != GEMM_S32 && !job->x_scale)
    return error_set(error, STATUS_INVALID, "x of type %s needs scales", gemm_type_name(job->x_type));
  return STATUS_OK;
}

enum status cuda_submit(struct backend *backend, const struct backend_job *job, struct error *error) {
  struct slot *slot = NULL;
  for (int i = 0; i < backend->slot_count && !slot; i++)
    slot = backend->slots[i].busy ? NULL : &backend->slots[i];
  if (!slot)
    return error_set(error, STATUS_BUSY, "%d products are under way", backend->slot_count);
  uint64_t begin_ns = backend_clock_ns();
  enum status status = job_check(job, error);
  if (status == STATUS_OK)
    status = backend_enter(backend, error);
  if (status != STATUS_OK)
    return status;
  slot->job = *job;
  slot->rows = 0;
  for (const struct backend_job *each = job; each; each = each->next)
    slot->rows += each->m;
  slot->next_row = 0;
  slot->status = STATUS_OK;
  slot->begin_ns = begin_ns;
  status = slot_advance(backend, slot, error);
  slot->busy = status == STATUS_OK;
  return status;
}

/* A fault stops the stream before it writes the word, so that is asked about from time to time. */
enum { LOOK_AFTER_NS = 2000000 };

/* True when the device has reached the slot's word; *failed: it never will. */
static bool word_written(struct slot *slot, uint64_t now_ns, enum status *failed) {
  struct error unreported;
  *failed = STATUS_OK;
  if (__atomic_load_n(slot->word, __ATOMIC_ACQUIRE) == slot->sequence)
    return true;
  if (now_ns - slot->looked_ns < LOOK_AFTER_NS)
    return false;
  slot->looked_ns = now_ns;
  cudaError_t result = cudaStreamQuery(slot->stream);
  if (result == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return false;
  }
  *failed = runtime_check(result, "waiting for a product", &unreported);
  return *failed != STATUS_OK || __atomic_load_n(slot->word, __ATOMIC_ACQUIRE) == slot->sequence;
}

/* True when the slot's job has ended. */
static bool slot_ended(struct backend *backend, struct slot *slot, uint64_t now_ns) {
  struct error unreported;
  enum status failed;
  if (!word_written(slot, now_ns, &failed))
    return false;
  if (failed == STATUS_OK && slot->status == STATUS_OK && slot->next_row < slot->rows) {
    failed = backend_enter(backend, &unreported);
    if (failed == STATUS_OK)
      failed = slot_advance(backend, slot, &unreported);
    if (failed == STATUS_OK)
      return false;
  }
  if (failed != STATUS_OK)
    slot->status = failed;
  return true;
}

int cuda_poll(struct backend *backend, struct backend_done *done, int most) {
  int count = 0;
  uint64_t now_ns = backend_clock_ns();
  for (int i = 0; i < backend->slot_count && count < most; i++) {
    struct slot *slot = &backend->slots[i];
    if (!slot->busy || !slot_ended(backend, slot, now_ns))
      continue;
    slot->busy = false;
    /* While another product was under way, the device was busy with that. */
    uint64_t begin_ns = slot->begin_ns > backend->ended_ns ? slot->begin_ns : backend->ended_ns;
    done[count++] = (struct backend_done){
        .tag = slot->job.tag,
        .status = slot->status,
        .device_ns = now_ns > begin_ns ? now_ns - begin_ns : 0,
    };
    backend->ended_ns = now_ns;
  }
  return count;
}
