#include "../../../runtime/tensor_map.h"
#include "../../call.h"
#include "../../table.h"
#include "../int4/form.h"
#include "../int4/variants.h"
#include "launch.h"

_Static_assert(INT2_MANY_SPLIT_MOST - 1 <= KERNEL_WAITED_FOR, "blocks of others that one waits for");

static enum status launch(struct backend *backend, const struct kernel_call *call, const struct variant *variant,
                          struct error *error) {
  const struct gemm_weight *weight = &call->weight->weight;
  struct int2_many_config config;
  struct int2_many_plan plan;
  struct int4_form form = int4_form_of(weight->format, weight->scale);
  struct kernel_problem problem = kernel_call_problem(backend, call);
  enum int4_many_kind kind = int4_many_kind(&problem);
  struct tiles_product product = kernel_call_tiles(call);
  product.sums = call->int2_sums;
  bool tiles = call->weight->layout.layout == LAYOUT_TILES4 || call->weight->layout.layout == LAYOUT_TILES4A8;
  bool ours = tiles && int4_many_of(variant, &config);
  bool in_range = kind == INT4_MANY_SCALED || (kind == INT4_MANY_SUMS && config.columns > 64);
  if (ours && in_range && call->weight->large_scales) {
    kind = INT4_MANY_EXACT;
    config.columns = 64;
    config.split_k = 0;
  }
  if (!ours || !int4_many_plan_for(&config, kind, call->m, weight->n, weight->k, backend->gpu.multiprocessors, &plan))
    return error_set(error, STATUS_UNSUPPORTED, "no kernel for this product");
  CUtensorMap x;
  enum status status = tensor_map_make(backend->driver, call->x, call->m, kernel_call_x_bytes(call),
                                       (int64_t)call->x_stride, config.columns, &x, error);
  if (status != STATUS_OK)
    return status;
  cudaError_t result =
      int4_many_launch(call->stream, &config, &plan, kind, &form, &product, &x, call->follows, call->resident);
  return runtime_check(result, "computing a product", error);
}

const struct kernel_family int4_many_kernels = {
    .variants = &int4_many_family,
    .predict = int4_many_predict,
    .candidates = int4_many_list,
    .lists_last = true,
    .neighbours = int4_many_neighbours,
    .check = int4_many_check,
    .launch = launch,
};
