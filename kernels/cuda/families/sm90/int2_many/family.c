#include "../../../runtime/tensor_map.h"
#include "../../call.h"
#include "../../table.h"
#include "../int2/variants.h"
#include "launch.h"

_Static_assert(INT2_MANY_SPLIT_MOST - 1 <= KERNEL_WAITED_FOR, "blocks of others that one waits for");

static enum status launch(struct backend *backend, const struct kernel_call *call, const struct variant *variant,
                          struct error *error) {
  const struct backend_weight *weight = call->weight;
  struct int2_many_config config;
  struct int2_many_plan plan;
  struct tiles_product product = kernel_call_tiles(call);
  product.sums = call->int2_sums;
  if (!layout_is_tiled(&weight->layout) || !gemm_is_int2(weight->weight.format) || !int2_many_of(variant, &config) ||
      product.x_type == GEMM_F32 ||
      !int2_many_plan_for(&config, product.x_type, call->m, weight->weight.n, weight->weight.k,
                          backend->gpu.multiprocessors, &plan))
    return error_set(error, STATUS_UNSUPPORTED, "no kernel for this product");
  CUtensorMap x;
  enum status status = tensor_map_make(backend->driver, call->x, call->m, kernel_call_x_bytes(call),
                                       (int64_t)call->x_stride, config.columns, &x, error);
  if (status != STATUS_OK)
    return status;
  cudaError_t result = int2_many_launch(call->stream, &config, &plan, &product, &x, call->follows, call->resident);
  return runtime_check(result, "computing a product", error);
}

const struct kernel_family int2_many_kernels = {
    .variants = &int2_many_family,
    .predict = int2_many_predict,
    .candidates = int2_many_list,
    .lists_last = true,
    .neighbours = int2_neighbours,
    .check = int2_check,
    .launch = launch,
};
