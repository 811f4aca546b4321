#include "weight.h"

#include "../../../proto/number.h"

#include <math.h>
#include <string.h>

static const float *scales_of(const struct backend_weight *weight) {
  return (const float *)(weight->panels + weight->layout.scales_offset);
}

static bool has_column_scales(const struct backend_weight *weight) {
  return weight->shape.format == GEMM_FORMAT_INT8 ||
         (weight->shape.format == GEMM_FORMAT_FP8 && weight->shape.scale != GEMM_SCALE_BLOCK);
}

bool cpu_weight_is_ordinary(double scale) {
  double size = fabs(scale);
  return isnan(scale) || size == 0 || (size >= 0x1p-45 && size <= 0x1p45);
}

void cpu_weight_inspect(struct backend_weight *weight) {
  const uint8_t *input = weight->panels + weight->layout.input_offset;
  if (weight->shape.input & GEMM_INPUT_SCALE)
    memcpy(&weight->x_scale, input, sizeof weight->x_scale);
  if (weight->shape.input & GEMM_INPUT_ORDER)
    weight->order = (const uint32_t *)(const void *)(input + (weight->layout.canonical.order_offset -
                                                              weight->layout.canonical.input_offset));
  weight->ordinary = true;
  for (int64_t n = 0; has_column_scales(weight) && n < weight->shape.n; n++) {
    weight->ordinary = weight->ordinary && cpu_weight_is_ordinary((double)scales_of(weight)[n]);
  }
}

const uint8_t *cpu_weight_panel(const struct backend_weight *weight, int64_t panel, int64_t k) {
  const struct cpu_layout *layout = &weight->layout;
  uint64_t before = (uint64_t)(panel * layout->width) * layout->column_bytes;
  uint64_t width = (uint64_t)cpu_layout_width(layout, &weight->shape, panel);
  return weight->panels + before + width * (layout->column_bytes * (uint64_t)k / (uint64_t)layout->k);
}

const float *cpu_weight_scales(const struct backend_weight *weight, int64_t panel) {
  static const float ones[MICRO_WIDTH] = {
      1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
      1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
  };
  return has_column_scales(weight) ? scales_of(weight) + panel * weight->layout.width : ones;
}

float cpu_weight_block_scale(const struct backend_weight *weight, int64_t panel, int64_t group) {
  int64_t row = panel * weight->layout.width / GEMM_GROUP;
  return scales_of(weight)[row * (int64_t)weight->layout.canonical.scale_columns + group];
}

/* ---- one element */

static uint16_t half_at(const uint8_t *at) {
  return (uint16_t)(at[0] | at[1] << 8);
}

double cpu_weight_code(const struct backend_weight *weight, int64_t n, int64_t k) {
  int64_t panel = n / weight->layout.width, column = n % weight->layout.width;
  int64_t width = cpu_layout_width(&weight->layout, &weight->shape, panel);
  const uint8_t *at = cpu_weight_panel(weight, panel, k / MICRO_GROUP * MICRO_GROUP);
  k %= MICRO_GROUP;
  switch (weight->shape.format) {
  case GEMM_FORMAT_INT8:
    return at[(k / 4 * width + column) * 4 + k % 4] - 128;
  case GEMM_FORMAT_FP8:
    at += (k / 4 * width + column / 16 * 16) * 4;
    return number_from_e4m3(at[column % 16 / 4 * 16 + k % 4 / 2 * 8 + column % 4 * 2 + k % 2]);
  case GEMM_FORMAT_F16:
    return number_from_f16(half_at(at + 2 * (k * width + column)));
  case GEMM_FORMAT_BF16:
    return number_from_bf16(half_at(at + 2 * ((k / 2 * width + column) * 2 + k % 2)));
  default:
    return (at[(k / 16 * width + column) * 4 + k % 4] >> k % 16 / 4 * 2 & 3) - 1;
  }
}

double cpu_weight_scale(const struct backend_weight *weight, int64_t n, int64_t k) {
  int64_t panel = n / weight->layout.width, column = n % weight->layout.width;
  if (gemm_is_int2(weight->shape.format)) {
    const uint8_t *group = cpu_weight_panel(weight, panel, k / MICRO_GROUP * MICRO_GROUP);
    int64_t width = cpu_layout_width(&weight->layout, &weight->shape, panel);
    return number_from_f16(half_at(group + MICRO_GROUP / 4 * width + 2 * column));
  }
  return weight->shape.scale == GEMM_SCALE_BLOCK ? cpu_weight_block_scale(weight, panel, k / MICRO_GROUP)
                                                 : cpu_weight_scales(weight, panel)[column];
}

/* ---- the canonical form */

static void put_code(const struct backend_weight *weight, int64_t n, int64_t k, uint8_t *row) {
  double code = cpu_weight_code(weight, n, k);
  uint16_t half;
  switch (weight->shape.format) {
  case GEMM_FORMAT_INT8:
    row[k] = (uint8_t)(int8_t)code;
    break;
  case GEMM_FORMAT_FP8:
    row[k] = number_to_e4m3((float)code);
    break;
  case GEMM_FORMAT_INT2:
  case GEMM_FORMAT_INT2A8:
    row[k / 4] |= (uint8_t)((int)(code + 1) << k % 4 * 2);
    break;
  default:
    half = weight->shape.format == GEMM_FORMAT_F16 ? number_to_f16((float)code) : number_to_bf16((float)code);
    memcpy(row + 2 * k, &half, sizeof(half));
    break;
  }
}

static void put_scales(const struct backend_weight *weight, uint8_t *scales) {
  const struct gemm_layout *layout = &weight->layout.canonical;
  int64_t height = weight->shape.scale == GEMM_SCALE_BLOCK ? GEMM_GROUP : 1;
  bool int2 = gemm_is_int2(weight->shape.format);
  for (uint64_t i = 0; i < layout->scale_count; i++) {
    int64_t n = (int64_t)(i / layout->scale_columns) * height, k = (int64_t)(i % layout->scale_columns) * GEMM_GROUP;
    float scale = (float)cpu_weight_scale(weight, n, k);
    uint16_t half = number_to_f16(scale);
    memcpy(scales + i * (int2 ? sizeof(half) : sizeof(scale)), int2 ? (void *)&half : (void *)&scale,
           int2 ? sizeof(half) : sizeof(scale));
  }
}

void cpu_weight_canonical(const struct backend_weight *weight, uint8_t *canonical) {
  const struct gemm_layout *layout = &weight->layout.canonical;
  for (int64_t n = 0; n < weight->shape.n; n++) {
    uint8_t *row = canonical + (uint64_t)n * layout->row_bytes;
    for (int64_t k = 0; k < weight->shape.k; k++) {
      put_code(weight, n, k, row);
    }
    for (uint64_t k = (uint64_t)weight->shape.k; gemm_is_int2(weight->shape.format) && k < 4 * layout->row_bytes; k++) {
      row[k / 4] |= (uint8_t)(1u << k % 4 * 2); /* the value 0 */
    }
  }
  if (weight->shape.scale != GEMM_SCALE_NONE) {
    put_scales(weight, canonical + layout->scales_offset);
  }
  memcpy(canonical + layout->input_offset, weight->panels + weight->layout.input_offset, layout->input_bytes);
}
