#include "weight.h"

#include "../../proto/number.h"

#include <string.h>

/* Elements of a row that are stored, padding included: the rest of the last group is not there. */
static int64_t stored(const struct backend_weight *weight, int64_t k, int groups) {
  int64_t bytes = weight->shape.format == GEMM_FORMAT_F16 || weight->shape.format == GEMM_FORMAT_BF16 ? 2 : 1;
  int64_t left = (int64_t)weight->layout.row_bytes / bytes - k;
  return left < groups * MICRO_GROUP ? left : groups * MICRO_GROUP;
}

void cpu_weight_widen(const struct backend_weight *weight, const struct micro_ops *micro, int64_t n, int64_t k,
                      int groups, void *to) {
  const uint8_t *row = weight->codes + (uint64_t)n * weight->layout.row_bytes;
  if (gemm_is_int2(weight->shape.format)) {
    micro->widen_int2(row + k / 4, to, groups);
    return;
  }
  int64_t count = stored(weight, k, groups), missing = groups * MICRO_GROUP - count;
  switch (weight->shape.format) {
  case GEMM_FORMAT_INT8:
    micro->widen_int8((const int8_t *)row + k, to, count);
    memset((int16_t *)to + count, 0, (size_t)missing * sizeof(int16_t));
    return;
  case GEMM_FORMAT_FP8:
    micro->widen_e4m3(row + k, to, count);
    break;
  case GEMM_FORMAT_F16:
    micro->widen_f16((const uint16_t *)row + k, to, count);
    break;
  default:
    micro->widen_bf16((const uint16_t *)row + k, to, count);
  }
  memset((float *)to + count, 0, (size_t)missing * sizeof(float));
}

static const void *scales_of(const struct backend_weight *weight) {
  return weight->codes + weight->layout.scales_offset;
}

bool cpu_weight_has_group_scales(const struct backend_weight *weight) {
  return weight->shape.scale == GEMM_SCALE_BLOCK || weight->shape.scale == GEMM_SCALE_GROUP;
}

void cpu_weight_group_scales(const struct backend_weight *weight, const struct micro_ops *micro, int64_t n, int64_t k,
                             int groups, float *to) {
  int64_t columns = (int64_t)weight->layout.scale_columns, first = k / GEMM_GROUP;
  if (weight->shape.scale == GEMM_SCALE_BLOCK) {
    memcpy(to, (const float *)scales_of(weight) + n / GEMM_GROUP * columns + first, (size_t)groups * sizeof(float));
  } else {
    micro->widen_f16((const uint16_t *)scales_of(weight) + n * columns + first, to, groups);
  }
}

float cpu_weight_scale(const struct backend_weight *weight, int64_t n) {
  switch (weight->shape.scale) {
  case GEMM_SCALE_ONE:
    return *(const float *)scales_of(weight);
  case GEMM_SCALE_ROW:
    return gemm_is_int2(weight->shape.format) ? number_from_f16(((const uint16_t *)scales_of(weight))[n])
                                              : ((const float *)scales_of(weight))[n];
  default:
    return 1;
  }
}
