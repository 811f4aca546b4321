/* Which kernel computes a product, and what it is given. */
#include "../families/sm90/int2/product.h"
#include "../families/few/launch.h"
#include "../families/sm90/fp8_many/launch.h"
#include "../families/sm90/hopper/launch.h"
#include "../families/sm90/many/launch.h"
#include "../heuristics/variants.h"
#include "../runtime/tensor_map.h"
#include "chunk.h"
#include "graph.h"
#include "launch.h"

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

static enum status fp8_many_run(const struct backend *backend, const struct chunk *chunk,
                                const struct fp8_many_config *config, const struct hopper_product *product,
                                bool dependent, struct error *error) {
  struct fp8_many_plan plan;
  CUtensorMap w, x;
  if (!fp8_many_plan_for(config, product, backend->multiprocessors, &plan))
    return error_set(error, STATUS_UNSUPPORTED, "no kernel for this product");
  enum status status =
      tensor_map_make(backend->driver, product->w, product->n, product->k, product->w_stride, config->rows, &w, error);
  if (status == STATUS_OK)
    status = tensor_map_make(backend->driver, product->x, product->m, product->k, product->x_stride, plan.columns, &x,
                             error);
  if (status != STATUS_OK)
    return status;
  return runtime_check(fp8_many_launch(chunk->slot->stream, config, &plan, product, &w, &x, dependent),
                       "computing a product", error);
}

/* Behind kernels of ours, W streams in while those still run: a thing of Hopper. */
static enum status own_launch(const struct backend *backend, const struct chunk *chunk, const struct choice *choice,
                              const struct hopper_product *product, struct error *error) {
  bool dependent = chunk->follows && backend->capability >= 90;
  cudaStream_t stream = chunk->slot->stream;
  if (choice->way == CHOICE_MANY)
    return many_run(backend, chunk, &choice->many, product, error);
  if (choice->way == CHOICE_FP8_MANY)
    return fp8_many_run(backend, chunk, &choice->fp8_many, product, dependent, error);
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
  product.y = chunk_y_target(chunk, &product.y_stride);
  product.y_rows = chunk->y_rows;
  enum status status = own_launch(backend, chunk, choice, &product, error);
  if (status != STATUS_OK || product.y_rows)
    return status;
  return runtime_check(chunk_y_done(chunk, product.y, product.y_stride), "computing a product", error);
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
      .y = chunk_y_target(chunk, &y_stride),
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
  status = tile_launch(&backend->tiles, code, &plan, &params, (CUstream)graph_stream(chunk->slot), error);
  return status == STATUS_OK ? runtime_check(chunk_y_done(chunk, params.y, y_stride), "computing a product", error)
                             : status;
}

/* The library may refuse an algorithm that it gave for the bucket's largest M: then it is asked about this very M, and
 * at last the plain kernel computes. */
static enum status way_run(struct backend *backend, struct chunk *chunk, const struct choice *choice,
                           const struct choice_request *request, struct error *error) {
  if (choice->way == CHOICE_HOPPER || choice->way == CHOICE_FEW || choice->way == CHOICE_MANY ||
      choice->way == CHOICE_FP8_MANY)
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
                     graph_stream(chunk->slot), error);
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
      .in_row = chunk->in_row && backend->capability >= 90,
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
  return runtime_check(chunk_finish(chunk, &choice, choice_final(&choice, &request)), "finishing a product", error);
}

enum status chunk_compute(struct backend *backend, struct chunk *chunk, struct error *error) {
  const struct variant *variant = chunk->job->variant;
  if (gemm_is_int2(chunk->weight->weight.format) && variant && variant->family == &tile_family && variant->ready[0]) {
    enum status status = tile_run(backend, chunk, variant, error);
    if (status != STATUS_UNSUPPORTED)
      return status;
  }
  return gemm_is_int2(chunk->weight->weight.format) ? int2_product_run(backend, chunk, error)
                                                    : product_run(backend, chunk, error);
}
