#include "../call.h"
#include "../table.h"
#include "launch.h"

const struct variant_family pairs_family = {.name = "pairs", .count = 0};

/* Every product over experts has a kernel. */
static bool predict(const struct kernel_problem *problem, struct variant *out, double *us) {
  *out = variant_default(&pairs_family);
  *us = KERNEL_LAST;
  return true;
}

static enum status launch(struct backend *backend, const struct kernel_call *call, const struct variant *variant,
                          struct error *error) {
  const struct gemm_weight *weight = &call->weight->weight;
  const struct layout *layout = &call->weight->layout;
  enum gemm_type codes = gemm_format_facts(weight->format)->codes;
  bool packed = gemm_is_packed(weight->format);
  if (weight->experts == 0)
    return error_set(error, STATUS_UNSUPPORTED, "the kernel for single pairs computes products over experts");
  if (layout_is_tiled(layout))
    return error_set(error, STATUS_UNSUPPORTED, "the kernel for single pairs does not read weights in tiles");
  const struct pairs_product product = {
      .format = weight->format,
      .scale = weight->scale,
      .pairs = call->m,
      .n = weight->n,
      .k = weight->k,
      .w = call->weight->codes,
      .w_scale = call->weight->scales,
      .w_scale_type = gemm_scale_type(weight),
      .w_zeros = layout->canonical.zeros_bytes > 0 ? call->weight->codes + layout->canonical.zeros_offset : NULL,
      .w_zeros_f16 = gemm_scale_facts(weight->scale)->zeros_f16,
      .group = packed ? gemm_scale_group(weight) : 0,
      .w_factors = call->weight->factors,
      .x = call->x,
      .x_scale = call->x_scale,
      .x_type = codes == GEMM_TYPE_NONE ? call->x_type : codes,
      .w_stride = (int64_t)layout->row_bytes,
      .x_stride = (int64_t)call->x_stride,
      .w_scale_stride = packed ? (int64_t)layout->scale_columns : (int64_t)layout->scale_row_bytes / 4,
      .x_scale_stride = call->m_padded,
      .bias = call->bias,
      .bias_type = call->bias_type,
      .y = call->y,
      .y_type = call->y_type,
      .y_stride = call->y_stride,
      .y_sorted = call->groups->y_sorted,
      .ids = call->groups->ids,
      .route = call->groups->route,
  };
  return runtime_check(launch_pairs(call->stream, &product), "computing a product over experts", error);
}

const struct kernel_family pairs_kernels = {
    .variants = &pairs_family,
    .predict = predict,
    .launch = launch,
    .experts = true,
};
