#include "../../call.h"
#include "../../table.h"
#include "../int2/variants.h"
#include "launch.h"

static bool same(const struct int2_few_config *a, const struct int2_few_config *b) {
  return a->columns == b->columns && a->split_k == b->split_k && a->rows == b->rows;
}

/* The weight's ways, or `out` with another in the place of the one for so many columns, where that fits. */
static const struct int2_few_way *ways_with(const struct backend_weight *weight, const struct int2_few_config *config,
                                            struct int2_few_way out[INT2_FEW_WAYS]) {
  struct int2_few_way chosen = {.config = *config};
  for (int i = 0; i < INT2_FEW_WAYS; i++)
    if (same(&weight->few[i].config, config))
      return weight->few;
  if (!int2_few_plan_for(config, weight->weight.n, weight->weight.k, &chosen.plan))
    return weight->few;
  for (int i = 0; i < INT2_FEW_WAYS; i++)
    out[i] = weight->few[i].config.columns == config->columns ? chosen : weight->few[i];
  return out;
}

static enum status launch(struct backend *backend, const struct kernel_call *call, const struct variant *variant,
                          struct error *error) {
  const struct backend_weight *weight = call->weight;
  struct int2_few_way chosen[INT2_FEW_WAYS];
  struct int2_few_config config;
  if (weight->layout.layout != LAYOUT_TILES2 || !int2_few_of(variant, call->x_type, call->y_type, call->m, &config))
    return error_set(error, STATUS_UNSUPPORTED, "no kernel for this product");
  const struct int2_few_way *ways = ways_with(weight, &config, chosen);
  const struct tiles_product product = kernel_call_tiles(call);
  int64_t most = int2_few_rows_most(call->x_type, call->y_type);
  cudaError_t result = cudaSuccess;
  for (int64_t row = 0; row < call->m && result == cudaSuccess; row += most) {
    const struct tiles_product part = kernel_call_part(&product, row, most);
    result = int2_few_launch(call->stream, ways, &part, call->follows || row > 0);
  }
  return runtime_check(result, "computing a product", error);
}

const struct kernel_family int2_few_kernels = {
    .variants = &int2_few_family,
    .predict = int2_few_predict,
    .candidates = int2_few_list,
    .neighbours = int2_neighbours,
    .check = int2_check,
    .launch = launch,
};
