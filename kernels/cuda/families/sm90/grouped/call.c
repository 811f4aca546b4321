#include "call.h"

struct grouped_product grouped_product_of(const struct kernel_call *call) {
  const struct gemm_weight *weight = &call->weight->weight;
  const struct layout *layout = &call->weight->layout;
  return (struct grouped_product){
      .format = weight->format,
      .scale = weight->scale,
      .pairs = call->m,
      .n = weight->n,
      .k = (int64_t)layout->row_bytes,
      .experts = (int)weight->experts,
      .w_scale = weight->scale == GEMM_SCALE_NONE ? NULL : (const float *)(const void *)call->weight->scales,
      .x_scale = call->x_scale,
      .w_scale_stride = (int64_t)layout->scale_row_bytes / 4,
      .x_scale_stride = call->m_padded,
      .bias = call->bias,
      .bias_type = call->bias_type,
      .y = call->y,
      .y_type = call->y_type,
      .y_stride = call->y_stride,
      .y_sorted = call->groups->y_sorted,
      .route = call->groups->route,
  };
}
