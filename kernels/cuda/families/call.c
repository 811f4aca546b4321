#include "call.h"

struct kernel_problem kernel_call_problem(const struct backend *backend, const struct kernel_call *call) {
  const struct backend_weight *weight = call->weight;
  return (struct kernel_problem){
      .device = backend->gpu,
      .format = weight->weight.format,
      .scale = weight->weight.scale,
      .tiled = layout_is_tiled(&weight->layout),
      .n = weight->weight.n,
      .k = weight->weight.k,
      .experts = weight->weight.experts,
      .top = call->groups ? call->groups->top : 0,
      .n_padded = weight->layout.n,
      .k_padded = weight->layout.k,
      .m = call->m_padded,
      .x_type = call->x_type,
      .y_type = call->y_type,
      .bias_type = call->bias ? call->bias_type : GEMM_TYPE_NONE,
      .in_row = call->in_row,
  };
}

int64_t kernel_call_x_bytes(const struct kernel_call *call) {
  const struct backend_weight *weight = call->weight;
  if (gemm_quantizes_x(weight->weight.format))
    return (int64_t)weight->layout.x_row_bytes;
  return weight->layout.k * gemm_type_bytes(call->x_type);
}

struct hopper_product kernel_call_rows(const struct kernel_call *call) {
  const struct backend_weight *weight = call->weight;
  const struct layout *layout = &weight->layout;
  bool scales = call->y_type != GEMM_S32 && weight->weight.scale != GEMM_SCALE_NONE;
  struct hopper_product product = {
      .format = weight->weight.format,
      .scale = weight->weight.scale,
      .m = call->m,
      .n = weight->weight.n,
      .k = layout->k,
      .experts = (int)weight->weight.experts,
      .w = weight->codes,
      .x = call->x,
      .w_stride = (int64_t)layout->row_bytes,
      .x_stride = (int64_t)call->x_stride,
      .w_scale = scales ? (const float *)(const void *)weight->scales : NULL,
      .x_scale = scales ? call->x_scale : NULL,
      .w_scale_stride = (int64_t)layout->scale_row_bytes / 4,
      .x_scale_stride = call->m_padded,
      .bias = call->bias,
      .bias_type = call->bias_type,
      .y = call->y,
      .y_type = call->y_type,
      .y_stride = call->y_stride,
      .y_rows = call->y_rows,
  };
  if (call->groups) {
    product.y_sorted = call->groups->y_sorted;
    product.route = call->groups->route;
  }
  return product;
}

struct tiles_product kernel_call_tiles(const struct kernel_call *call) {
  const struct backend_weight *weight = call->weight;
  struct tiles_product product = {
      .format = weight->weight.format,
      .m = call->m,
      .n = weight->weight.n,
      .k = weight->layout.k,
      .experts = (int)weight->weight.experts,
      .tiles = weight->codes,
      .large_scales = weight->large_scales,
      .bf16_scales = gemm_scale_type(&weight->weight) == GEMM_BF16,
      .factors = weight->factors,
      .x = call->x,
      .x_type = gemm_quantizes_x(weight->weight.format) ? GEMM_INT8 : call->x_type,
      .x_stride = (int64_t)call->x_stride,
      .x_scale = call->x_scale,
      .bias = call->bias,
      .bias_type = call->bias_type,
      .y = call->y,
      .y_type = call->y_type,
      .y_stride = call->y_stride,
  };
  if (call->groups) {
    product.y_sorted = call->groups->y_sorted;
    product.route = call->groups->route;
  }
  return product;
}

struct tiles_product kernel_call_part(const struct tiles_product *product, int64_t row, int64_t most) {
  struct tiles_product part = *product;
  part.m = product->m - row < most ? product->m - row : most;
  part.x = (const uint8_t *)product->x + row * product->x_stride;
  part.x_scale = product->x_scale ? product->x_scale + row : NULL;
  part.y = (uint8_t *)product->y + (uint64_t)row * product->y_stride;
  return part;
}
