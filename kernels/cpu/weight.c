#include "weight.h"

#include <math.h>

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
