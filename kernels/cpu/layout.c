#include "layout.h"

#include "micro.h"

#include <string.h>

static bool has_group_scales(const struct gemm_weight *weight) {
  return gemm_is_int2(weight->format) || weight->scale == GEMM_SCALE_BLOCK;
}

/* Elements of K in one dword of a panel of the format. */
static uint64_t step_of(enum gemm_format format) {
  return format == GEMM_FORMAT_F16 ? 1 : format == GEMM_FORMAT_BF16 ? 2 : 4;
}

static uint64_t column_bytes(const struct gemm_weight *weight, uint64_t k) {
  switch (weight->format) {
  case GEMM_FORMAT_F16:
  case GEMM_FORMAT_BF16:
    return 2 * k;
  case GEMM_FORMAT_INT2:
  case GEMM_FORMAT_INT2A8:
    return k / MICRO_GROUP * (MICRO_GROUP / 4 + 2);
  default:
    return k;
  }
}

enum status cpu_layout_compute(const struct gemm_weight *weight, struct cpu_layout *out, struct error *error) {
  struct cpu_layout layout = {.width = gemm_is_int2(weight->format) ? 64 : 32};
  enum status status = gemm_layout_compute(weight, &layout.canonical, error);
  if (status != STATUS_OK) {
    return status;
  }
  uint64_t n = gemm_round_up((uint64_t)weight->n, MICRO_VECTOR);
  uint64_t k = gemm_round_up((uint64_t)weight->k, has_group_scales(weight) ? MICRO_GROUP : step_of(weight->format));
  layout.k = (int64_t)k;
  layout.panels = (int64_t)gemm_ceil_div(n, (uint64_t)layout.width);
  layout.column_bytes = column_bytes(weight, k);
  if (weight->scale == GEMM_SCALE_BLOCK) {
    layout.scales_bytes = layout.canonical.scales_bytes;
  } else if (weight->format == GEMM_FORMAT_INT8 || weight->format == GEMM_FORMAT_FP8) {
    layout.scales_bytes = n * sizeof(float);
  }
  /* Dimensions are at most 2^24 and the canonical form fits 64 bits with room to spare. */
  layout.scales_offset = gemm_round_up(n * layout.column_bytes, GEMM_SECTION);
  layout.total_bytes = layout.scales_offset + layout.scales_bytes;
  *out = layout;
  return STATUS_OK;
}

int cpu_layout_width(const struct cpu_layout *layout, const struct gemm_weight *weight, int64_t panel) {
  int64_t left = (int64_t)gemm_round_up((uint64_t)weight->n, MICRO_VECTOR) - panel * layout->width;
  return left < layout->width ? (int)left : layout->width;
}

/* Where byte k % 4 of column % 16 is among the 64 of FP8. */
static int place_e4m3(int column, int64_t k) {
  return column % 16 / 4 * 16 + (int)(k % 4) / 2 * 8 + column % 4 * 2 + (int)(k % 2);
}

static void pack_bytes(const struct gemm_weight *weight, const struct cpu_layout *layout, const uint8_t *row,
                       int column, int width, uint8_t *out) {
  bool int8 = weight->format == GEMM_FORMAT_INT8;
  for (int64_t k = 0; k < layout->k; k++) {
    uint8_t code = k < weight->k ? row[k] : 0;
    if (int8) {
      out[(k / 4 * width + column) * 4 + k % 4] = code ^ 0x80;
    } else {
      out[(k / 4 * width + column / 16 * 16) * 4 + place_e4m3(column, k)] = code;
    }
  }
}

/* Elements [begin, end) of a row. */
static void pack_halves(const struct gemm_weight *weight, const uint16_t *row, int64_t begin, int64_t end, int column,
                        int width, uint16_t *out) {
  int64_t step = (int64_t)step_of(weight->format);
  for (int64_t k = begin; k < end; k++) {
    out[(k / step * width + column) * step + k % step] = k < weight->k ? row[k] : 0;
  }
}

static uint16_t scale_of(const struct gemm_weight *weight, const struct cpu_layout *layout, const void *canonical,
                         int64_t n, int64_t group) {
  const uint16_t *scales = (const uint16_t *)((const uint8_t *)canonical + layout->canonical.scales_offset);
  return weight->scale == GEMM_SCALE_ROW ? scales[n] : scales[n * (int64_t)layout->canonical.scale_columns + group];
}

/* Codes k .. k + 15 of a row, four canonical bytes, as one dword. */
static uint32_t order_codes2(const uint8_t *codes) {
  uint32_t out = 0;
  for (int i = 0; i < 4; i++) {
    for (int j = 0; j < 4; j++) {
      out |= (uint32_t)(codes[i] >> 2 * j & 3) << (8 * j + 2 * i);
    }
  }
  return out;
}

static void pack_codes2(const struct gemm_weight *weight, const struct cpu_layout *layout, const void *canonical,
                        int64_t n, int column, int width, uint8_t *out) {
  const uint8_t *row = (const uint8_t *)canonical + (uint64_t)n * layout->canonical.row_bytes;
  for (int64_t group = 0; group < layout->k / MICRO_GROUP; group++, row += MICRO_GROUP / 4) {
    for (int i = 0; i < 8; i++, out += 4 * width) {
      uint32_t word = order_codes2(row + 4 * i);
      memcpy(out + 4 * column, &word, sizeof(word));
    }
    uint16_t scale = scale_of(weight, layout, canonical, n, group);
    memcpy(out + 2 * column, &scale, sizeof(scale));
    out += 2 * width;
  }
}

/* Some of K at a time, so that what all columns write to stays in the cache. */
static void pack_half_panel(const struct gemm_weight *weight, const struct cpu_layout *layout, const void *canonical,
                            int64_t panel, int width, uint16_t *out) {
  enum { K_AT_ONCE = 256 };
  int64_t first = panel * layout->width, left = weight->n - first;
  int columns = left < width ? (int)left : width;
  for (int64_t k = 0; k < layout->k; k += K_AT_ONCE) {
    int64_t end = layout->k - k < K_AT_ONCE ? layout->k : k + K_AT_ONCE;
    for (int column = 0; column < columns; column++) {
      const uint8_t *row = (const uint8_t *)canonical + (uint64_t)(first + column) * layout->canonical.row_bytes;
      pack_halves(weight, (const uint16_t *)row, k, end, column, width, out);
    }
  }
}

void cpu_layout_pack(const struct gemm_weight *weight, const struct cpu_layout *layout, const void *canonical,
                     int64_t panel, uint8_t *out) {
  int width = cpu_layout_width(layout, weight, panel);
  memset(out, weight->format == GEMM_FORMAT_INT8 ? 0x80 : 0, (uint64_t)width * layout->column_bytes);
  if (weight->format == GEMM_FORMAT_F16 || weight->format == GEMM_FORMAT_BF16) {
    pack_half_panel(weight, layout, canonical, panel, width, (uint16_t *)out);
    return;
  }
  for (int column = 0; column < width && panel * layout->width + column < weight->n; column++) {
    int64_t n = panel * layout->width + column;
    const uint8_t *row = (const uint8_t *)canonical + (uint64_t)n * layout->canonical.row_bytes;
    if (gemm_is_int2(weight->format)) {
      pack_codes2(weight, layout, canonical, n, column, width, out);
    } else {
      pack_bytes(weight, layout, row, column, width, out);
    }
  }
}

void cpu_layout_scales(const struct gemm_weight *weight, const struct cpu_layout *layout, const void *canonical,
                       uint8_t *out) {
  const float *scales = (const float *)((const uint8_t *)canonical + layout->canonical.scales_offset);
  if (weight->scale == GEMM_SCALE_BLOCK) {
    memcpy(out, scales, layout->scales_bytes);
    return;
  }
  for (int64_t n = 0; n < (int64_t)(layout->scales_bytes / sizeof(float)); n++) {
    ((float *)out)[n] = n >= weight->n ? 0 : weight->scale == GEMM_SCALE_ONE ? scales[0] : scales[n];
  }
}
