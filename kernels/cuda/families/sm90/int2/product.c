#include "product.h"

#include "../../../exec/launch.h"
#include "../../../runtime/tensor_map.h"
#include "../int2_few/launch.h"
#include "../int2_many/launch.h"
#include "../int2a8/launch.h"
#include "variants.h"

/* ---- a few rows at a time */

static bool same_few(const struct int2_few_config *a, const struct int2_few_config *b) {
  return a->columns == b->columns && a->split_k == b->split_k && a->rows == b->rows;
}

/* The plan of a configuration that was chosen by tuning: made once, for as long as no other takes its place. NULL where
 * it does not fit. */
static const struct int2_few_way *few_chosen(struct backend *backend, const struct gemm_weight *weight,
                                             const struct int2_few_config *config) {
  uint64_t key = ((uint64_t)weight->n << 32 ^ (uint64_t)weight->k << 16 ^ (uint64_t)config->columns << 12 ^
                  (uint64_t)config->rows << 4 ^ (uint64_t)config->split_k) *
                 0x9e3779b97f4a7c15u;
  struct int2_few_chosen *kept = &backend->int2_few[(key >> 32) % INT2_FEW_CHOSEN];
  if (kept->n == weight->n && kept->k == weight->k && same_few(&kept->way.config, config))
    return &kept->way;
  kept->n = 0;
  if (!int2_few_plan_for(config, weight->n, weight->k, &kept->way.plan))
    return NULL;
  kept->way.config = *config;
  kept->n = weight->n;
  kept->k = weight->k;
  return &kept->way;
}

/* The weight's ways, or `out` with the one in place that was chosen for so many rows. */
static const struct int2_few_way *few_ways(struct backend *backend, const struct chunk *chunk,
                                           struct int2_few_way out[INT2_FEW_WAYS]) {
  const struct backend_weight *weight = chunk->weight;
  struct int2_few_config config;
  if (!int2_few_of(chunk->job->variant, chunk->job->x_type, chunk->job->y_type, chunk->rows, &config))
    return weight->few;
  const struct int2_few_way *chosen = few_chosen(backend, &weight->weight, &config);
  if (!chosen)
    return weight->few;
  for (int i = 0; i < INT2_FEW_WAYS; i++)
    out[i] = weight->few[i].config.columns == config.columns ? *chosen : weight->few[i];
  return out;
}

static enum status few_run(struct backend *backend, struct chunk *chunk, struct error *error) {
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
  struct int2_few_way chosen[INT2_FEW_WAYS];
  const struct int2_few_way *ways = few_ways(backend, chunk, chosen);
  uint8_t *x = chunk_staged(chunk, chunk->at.x), *y = chunk_y_target(chunk, &product.y_stride);
  int64_t most = int2_few_rows_most(job->x_type, job->y_type);
  cudaError_t result = cudaSuccess;
  for (int64_t row = 0; row < chunk->rows && result == cudaSuccess; row += product.m) {
    product.m = chunk->rows - row < most ? chunk->rows - row : most;
    product.x = x + (uint64_t)row * product.x_stride;
    product.y = y + (uint64_t)row * product.y_stride;
    result = int2_few_launch(chunk->slot->stream, ways, &product, chunk->follows || row > 0);
  }
  if (result == cudaSuccess)
    result = chunk_y_done(chunk, y, product.y_stride);
  return runtime_check(result, "computing a product", error);
}

/* ---- all rows at once */

static enum status many_run(struct backend *backend, struct chunk *chunk, const struct int2_many_config *config,
                            const struct int2_many_plan *plan, struct error *error) {
  const struct backend_job *job = chunk->job;
  const struct backend_weight *weight = chunk->weight;
  bool codes = weight->layout.layout == LAYOUT_TILES2A8;
  struct int2_many_product product = {
      .m = chunk->rows,
      .n = weight->weight.n,
      .tiles = weight->codes,
      .x_type = codes ? GEMM_INT8 : job->x_type,
      .x_scale = codes ? chunk_staged(chunk, chunk->at.scales) : NULL,
      .bias = job->bias ? chunk_staged(chunk, chunk->at.bias) : NULL,
      .bias_type = job->bias_type,
      .y_type = job->y_type,
      .large_scales = weight->large_scales,
      .sums = chunk->slot->int2_sums,
  };
  product.y = chunk_y_target(chunk, &product.y_stride);
  const void *rows = chunk_staged(chunk, codes ? chunk->at.codes : chunk->at.x);
  int64_t row_bytes = codes ? (int64_t)weight->layout.x_row_bytes : weight->layout.k * 2;
  CUtensorMap x;
  enum status status =
      tensor_map_make(backend->driver, rows, chunk->rows, row_bytes, row_bytes, config->columns, &x, error);
  if (status != STATUS_OK)
    return status;
  bool together = backend->slot_count * (INT2_MANY_SPLIT_MOST - 1) >= backend->multiprocessors;
  cudaError_t result = int2_many_launch(chunk->slot->stream, config, plan, &product, &x, chunk->follows, together);
  if (result == cudaSuccess)
    result = chunk_y_done(chunk, product.y, product.y_stride);
  return runtime_check(result, "computing a product", error);
}

/* What computes all rows at once, if anything shall: as tuning says, or where that is faster. */
static bool many_chosen(const struct backend *backend, const struct chunk *chunk, enum gemm_type x_type,
                        const struct variant_family *few, struct int2_many_config *config,
                        struct int2_many_plan *plan) {
  const struct gemm_weight *weight = &chunk->weight->weight;
  const struct variant *variant = chunk->job->variant;
  int sms = backend->multiprocessors;
  if (int2_many_of(variant, config) && int2_many_plan_for(config, x_type, chunk->rows, weight->n, weight->k, sms, plan))
    return true;
  return !(variant && variant->family == few) &&
         int2_goes_to_many(x_type, chunk->job->y_type, chunk->rows, weight->n, weight->k, sms, config, plan);
}

static enum status tiles_run(struct backend *backend, struct chunk *chunk, struct error *error) {
  struct int2_many_config config;
  struct int2_many_plan plan;
  if (many_chosen(backend, chunk, chunk->job->x_type, &int2_few_family, &config, &plan))
    return many_run(backend, chunk, &config, &plan, error);
  return few_run(backend, chunk, error);
}

/* ---- INT8 x, some rows at a time */

/* The way that tuning has chosen for so many rows; eights 0: none, or it does not fit. */
static struct int2a8_way a8_chosen(const struct chunk *chunk) {
  const struct gemm_weight *weight = &chunk->weight->weight;
  struct int2a8_way way = {.config = {.eights = 0}};
  int eights = int2a8_way_for(chunk->weight->int2a8, chunk->rows)->config.eights;
  if (int2a8_of(chunk->job->variant, eights, &way.config) &&
      !int2a8_plan_for(&way.config, weight->n, weight->k, &way.plan))
    way.config.eights = 0;
  return way;
}

static enum status a8_few_run(struct chunk *chunk, struct error *error) {
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
  uint8_t *y = chunk_y_target(chunk, &product.y_stride);
  const struct int2a8_way chosen = a8_chosen(chunk);
  cudaError_t result = cudaSuccess;
  for (int64_t row = 0; row < chunk->rows && result == cudaSuccess; row += product.m) {
    const struct int2a8_way *way = int2a8_way_for(weight->int2a8, chunk->rows - row);
    if (chosen.config.eights == way->config.eights)
      way = &chosen;
    int64_t most = 8 * way->config.eights;
    product.m = chunk->rows - row < most ? chunk->rows - row : most;
    product.x = x + row * product.x_stride;
    product.x_scale = scales + row;
    product.y = y + (uint64_t)row * product.y_stride;
    result = int2a8_launch(chunk->slot->stream, way, &product, chunk->follows || row > 0);
  }
  if (result == cudaSuccess)
    result = chunk_y_done(chunk, y, product.y_stride);
  return runtime_check(result, "computing a product", error);
}

static enum status a8_run(struct backend *backend, struct chunk *chunk, struct error *error) {
  struct int2_many_config config;
  struct int2_many_plan plan;
  if (many_chosen(backend, chunk, GEMM_INT8, &int2a8_family, &config, &plan))
    return many_run(backend, chunk, &config, &plan, error);
  return a8_few_run(chunk, error);
}

static enum status plain_run(struct chunk *chunk, struct error *error) {
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
  product.y = chunk_y_target(chunk, &product.y_stride);
  cudaError_t result = launch_int2(chunk->slot->stream, &product);
  if (result == cudaSuccess)
    result = chunk_y_done(chunk, product.y, product.y_stride);
  return runtime_check(result, "computing a product", error);
}

enum status int2_product_run(struct backend *backend, struct chunk *chunk, struct error *error) {
  switch (chunk->weight->layout.layout) {
  case LAYOUT_TILES2:
    return tiles_run(backend, chunk, error);
  case LAYOUT_TILES2A8:
    return a8_run(backend, chunk, error);
  default:
    return plain_run(chunk, error);
  }
}
