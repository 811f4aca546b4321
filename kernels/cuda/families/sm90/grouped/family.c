#include "../../../runtime/tensor_map.h"
#include "../../call.h"
#include "../../table.h"
#include "config.h"
#include "launch.h"

const struct variant_family grouped_family = {
    .name = "grouped",
    .count = 3,
    .parameters =
        {
            {"columns", "rows of x in a tile", 8, 128, 8, 64},
            {"groups", "warpgroups, each 64 rows of W", 1, 2, 1, 1},
            {"blocks", "of a multiprocessor", 1, 2, 1, 1},
        },
};

static struct grouped_config config_of(const struct variant *variant) {
  return (struct grouped_config){
      .columns = variant->values[0], .groups = variant->values[1], .blocks = variant->values[2]};
}

static struct variant variant_of(const struct grouped_config *config) {
  return (struct variant){.family = &grouped_family, .values = {config->columns, config->groups, config->blocks}};
}

static bool predict(const struct kernel_problem *problem, struct variant *out, double *us) {
  if (!grouped_takes(problem))
    return false;
  struct grouped_config config = grouped_configure(problem);
  *out = variant_of(&config);
  *us = grouped_us(problem);
  return true;
}

static int list(struct backend *backend, const struct kernel_problem *problem, bool all, struct variant *out, int count,
                int most) {
  struct grouped_config config;
  if (!grouped_takes(problem))
    return count;
  for (config.columns = 8; config.columns <= GROUPED_COLUMNS_MOST; config.columns *= 2)
    for (config.groups = 1; config.groups <= 2; config.groups++)
      for (config.blocks = 1; config.blocks <= 2; config.blocks++)
        if (count < most && grouped_config_valid(&config, problem->scale))
          out[count++] = variant_of(&config);
  return count;
}

static enum status check(struct backend *backend, const struct kernel_problem *problem, struct variant *variant,
                         struct variant *nearest, struct error *error) {
  struct grouped_config config = config_of(variant);
  if (!grouped_takes(problem))
    return error_set(error, STATUS_UNSUPPORTED,
                     "family grouped takes experts of INT8, FP8, F16 and BF16, on compute capability 9.0");
  if (grouped_config_valid(&config, problem->scale))
    return STATUS_OK;
  if (nearest) {
    struct grouped_config close = grouped_configure(problem);
    *nearest = variant_of(&close);
  }
  return error_set(error, STATUS_UNSUPPORTED, "there is no such kernel");
}

/* Tiles are the route's, however many rows the variant would like; rows of x may be read beyond the last pair, so that
 * the copy engine's boxes lie inside. */
static enum status launch(struct backend *backend, const struct kernel_call *call, const struct variant *variant,
                          struct error *error) {
  struct kernel_problem problem = kernel_call_problem(backend, call);
  struct grouped_config config = config_of(variant);
  if (!grouped_takes(&problem))
    return error_set(error, STATUS_UNSUPPORTED, "no kernel for this product");
  for (config.columns = 8; config.columns < call->groups->tile_rows;)
    config.columns *= 2;
  if (config.columns > GROUPED_COLUMNS_MOST / 2)
    config.groups = 2, config.blocks = 1;
  if (!grouped_config_valid(&config, problem.scale))
    return error_set(error, STATUS_UNSUPPORTED, "no kernel for such tiles");
  const struct layout *layout = &call->weight->layout;
  struct hopper_product product = kernel_call_rows(call);
  product.k = (int64_t)layout->row_bytes; /* elements of two bytes have as many more */
  int64_t rows = call->weight->weight.n * call->weight->weight.experts, x_rows = call->m + GROUPED_COLUMNS_MOST;
  CUtensorMap w, x[GROUPED_WIDTHS];
  enum status status = tensor_map_make(backend->driver, call->weight->codes, rows, product.k,
                                       (int64_t)layout->row_bytes, 64 * config.groups, &w, error);
  for (int i = 0; i < GROUPED_WIDTHS && GROUPED_WIDTH(i) <= config.columns && status == STATUS_OK; i++)
    status = tensor_map_make(backend->driver, call->x, x_rows, product.k, (int64_t)call->x_stride, GROUPED_WIDTH(i),
                             &x[i], error);
  if (status != STATUS_OK)
    return status;
  cudaError_t result =
      grouped_launch(call->stream, &config, &product, &w, x, problem.device.multiprocessors, call->follows);
  return runtime_check(result, "computing a product over experts", error);
}

const struct kernel_family grouped_kernels = {
    .variants = &grouped_family,
    .predict = predict,
    .candidates = list,
    .check = check,
    .launch = launch,
    .experts = true,
};
