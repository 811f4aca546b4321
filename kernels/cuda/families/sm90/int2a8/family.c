#include "../../call.h"
#include "../../table.h"
#include "../int2/variants.h"
#include "launch.h"

/* The variant's way for so many rows: the weight's own, or `out`; NULL where it does not fit. */
static const struct int2a8_way *way_of(const struct kernel_call *call, const struct variant *variant,
                                       struct int2a8_way *out) {
  const struct gemm_weight *weight = &call->weight->weight;
  const struct int2a8_way *own = int2a8_way_for(call->weight->int2a8, call->m);
  if (!int2a8_of(variant, own->config.eights, &out->config))
    return NULL;
  if (out->config.split_k == own->config.split_k && out->config.blocks == own->config.blocks)
    return own;
  return int2a8_plan_for(&out->config, weight->n, weight->k, &out->plan) ? out : NULL;
}

static enum status launch(struct backend *backend, const struct kernel_call *call, const struct variant *variant,
                          struct error *error) {
  const struct backend_weight *weight = call->weight;
  if (weight->layout.layout != LAYOUT_TILES2A8)
    return error_set(error, STATUS_UNSUPPORTED, "no kernel for this product");
  const struct tiles_product product = kernel_call_tiles(call);
  struct int2a8_way made;
  const struct int2a8_way *chosen = way_of(call, variant, &made);
  cudaError_t result = cudaSuccess;
  for (int64_t row = 0, most; row < call->m && result == cudaSuccess; row += most) {
    const struct int2a8_way *way = int2a8_way_for(weight->int2a8, call->m - row);
    if (chosen && chosen->config.eights == way->config.eights)
      way = chosen;
    most = 8 * way->config.eights;
    const struct tiles_product part = kernel_call_part(&product, row, most);
    result = int2a8_launch(call->stream, way, &part, call->follows || row > 0);
  }
  return runtime_check(result, "computing a product", error);
}

const struct kernel_family int2a8_kernels = {
    .variants = &int2a8_family,
    .predict = int2a8_predict,
    .candidates = int2a8_list,
    .neighbours = int2_neighbours,
    .check = int2_check,
    .launch = launch,
};
