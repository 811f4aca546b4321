#include "input.h"

#include "../../../proto/number.h"

#include <math.h>
#include <string.h>

static void cpu_input_widen(const struct micro_ops *micro, enum gemm_type type, const void *from, float *to,
                            int64_t count) {
  switch (type) {
  case GEMM_F16:
    micro->widen_f16(from, to, count);
    break;
  case GEMM_BF16:
    micro->widen_bf16(from, to, count);
    break;
  case GEMM_E4M3:
    micro->widen_e4m3(from, to, count);
    break;
  default:
    memcpy(to, from, (size_t)count * sizeof(float));
  }
}

int64_t cpu_input_spare(const struct gemm_weight *shape) {
  return shape->input & GEMM_INPUT_ORDER ? shape->k : 0;
}

/* The order lies in memory that who has borrowed the weight can write to. */
static void reorder(const struct backend_weight *weight, const float *from, float *to) {
  uint32_t k = (uint32_t)weight->shape.k;
  for (uint32_t i = 0; i < k; i++) {
    uint32_t at = weight->order[i];
    to[i] = from[at < k ? at : 0];
  }
}

void cpu_input_row(const struct backend_weight *weight, const struct micro_ops *micro, enum gemm_type type,
                   const void *x, float *spare, float *to) {
  int64_t k = weight->shape.k;
  bool ordered = (weight->shape.input & GEMM_INPUT_ORDER) != 0;
  uint32_t stages = gemm_rotation(weight->shape.input);
  cpu_input_widen(micro, type, x, ordered ? spare : to, k);
  if (ordered) {
    reorder(weight, spare, to);
  }
  if (stages > 0) {
    micro->rotate(to, k, stages);
  }
}

float cpu_input_scale(const struct backend_weight *weight, float largest) {
  if (weight->shape.input & GEMM_INPUT_SCALE) {
    return isfinite(largest) ? weight->x_scale : NAN;
  }
  return weight->shape.format == GEMM_FORMAT_FP8 ? number_scale_e4m3(largest) : number_scale_int8(largest);
}
