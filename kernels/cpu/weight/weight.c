#include "weight.h"

#include "../../../proto/number.h"

#include <math.h>
#include <string.h>

static const float *scales_of(const struct backend_weight *weight) {
  return (const float *)(weight->panels + weight->layout.scales_offset);
}

static bool has_column_scales(const struct backend_weight *weight) {
  return weight->shape.format == GEMM_FORMAT_INT8 || weight->layout.canonical.factors_bytes > 0 ||
         (weight->shape.format == GEMM_FORMAT_FP8 && weight->shape.scale != GEMM_SCALE_BLOCK);
}

bool cpu_weight_is_ordinary(double scale) {
  double size = fabs(scale);
  return isnan(scale) || size == 0 || (size >= 0x1p-45 && size <= 0x1p45);
}

/* Whether all of a group is 0, whose scale then does not matter. */
static bool is_zero(const struct backend_weight *weight, int64_t n, int64_t first) {
  int64_t k = first, left = weight->shape.k - first,
          end = first + (left < weight->layout.group ? left : weight->layout.group);
  while (k < end && cpu_weight_code(weight, n, k) == 0) {
    k++;
  }
  return k == end;
}

/* Of codes below 8 bits: whether f32 sums of normalized rows stay within f32 with every scale, as with f16 and e4m3 all
 * do. */
static bool is_extreme(const struct backend_weight *weight) {
  enum gemm_type type = gemm_scale_type(&weight->shape);
  bool looks = gemm_is_packed(weight->shape.format) && type != GEMM_F16 && type != GEMM_E4M3;
  for (int64_t n = 0; looks && n < weight->shape.n; n++) {
    for (int64_t k = 0; k < weight->shape.k; k += weight->layout.group) {
      double size = fabs(cpu_weight_scale(weight, n, k));
      if (size != 0 && !(size >= 0x1p-60 && size <= 0x1p30) && !is_zero(weight, n, k)) {
        return true;
      }
    }
  }
  return false;
}

void cpu_weight_inspect(struct backend_weight *weight) {
  const uint8_t *input = weight->panels + weight->layout.input_offset;
  if (weight->shape.input & GEMM_INPUT_SCALE)
    memcpy(&weight->x_scale, input, sizeof weight->x_scale);
  if (weight->shape.input & GEMM_INPUT_ORDER)
    weight->order = (const uint32_t *)(const void *)(input + (weight->layout.canonical.order_offset -
                                                              weight->layout.canonical.input_offset));
  weight->ordinary = true;
  weight->extreme = is_extreme(weight);
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

/* A group of a panel of codes below 8 bits. */
struct coded {
  const uint8_t *codes, *scale, *zero; /* of one column; zero: NULL where there are none */
  int64_t width;
  int bits;
};

static struct coded coded_at(const struct backend_weight *weight, int64_t n, int64_t k) {
  int64_t panel = n / weight->layout.width, column = n % weight->layout.width, group = weight->layout.group;
  struct coded at = {.width = cpu_layout_width(&weight->layout, &weight->shape, panel),
                     .bits = gemm_format_facts(weight->shape.format)->bits};
  const uint8_t *from = cpu_weight_panel(weight, panel, k / group * group);
  const uint8_t *behind = from + group * at.bits / 8 * at.width;
  at.codes = from + 4 * column;
  at.scale = behind + 2 * column;
  uint64_t zero_bytes = cpu_layout_zero_bytes(&weight->shape);
  at.zero = zero_bytes > 0 ? behind + 2 * at.width + (uint64_t)column * zero_bytes : NULL;
  return at;
}

static int code_bits(const struct backend_weight *weight, int64_t n, int64_t k) {
  struct coded at = coded_at(weight, n, k);
  int64_t i = k % weight->layout.group, per_word = 32 / at.bits;
  return at.codes[i / per_word * 4 * at.width + i % 4] >> i % per_word / 4 * at.bits & ((1 << at.bits) - 1);
}

static double value_of_code(const struct backend_weight *weight, int64_t n, int64_t k) {
  struct coded at = coded_at(weight, n, k);
  int code = code_bits(weight, n, k);
  if (gemm_format_facts(weight->shape.format)->element == GEMM_E2M1) {
    return number_from_e2m1((uint8_t)code);
  }
  int middle = gemm_format_facts(weight->shape.format)->padding & ((1 << at.bits) - 1);
  return code - (at.zero != NULL ? gemm_zero_get(weight->shape.scale, at.zero, 0) : (float)middle);
}

double cpu_weight_code(const struct backend_weight *weight, int64_t n, int64_t k) {
  int64_t panel = n / weight->layout.width, column = n % weight->layout.width;
  int64_t width = cpu_layout_width(&weight->layout, &weight->shape, panel);
  if (gemm_is_packed(weight->shape.format)) {
    return value_of_code(weight, n, k);
  }
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
  default:
    return number_from_bf16(half_at(at + 2 * ((k / 2 * width + column) * 2 + k % 2)));
  }
}

double cpu_weight_scale(const struct backend_weight *weight, int64_t n, int64_t k) {
  int64_t panel = n / weight->layout.width, column = n % weight->layout.width;
  if (gemm_is_packed(weight->shape.format)) {
    uint16_t half = half_at(coded_at(weight, n, k).scale);
    return gemm_scale_type(&weight->shape) == GEMM_F16 ? number_from_f16(half) : number_from_bf16(half);
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
  default:
    half = weight->shape.format == GEMM_FORMAT_F16 ? number_to_f16((float)code) : number_to_bf16((float)code);
    memcpy(row + 2 * k, &half, sizeof(half));
    break;
  }
}

/* The same of codes below 8 bits, and what stands behind them. */
static void put_packed(const struct backend_weight *weight, int64_t n, uint8_t *row) {
  const struct gemm_format_facts *facts = gemm_format_facts(weight->shape.format);
  int64_t per_byte = 8 / facts->bits, end = per_byte * (int64_t)weight->layout.canonical.row_bytes;
  for (int64_t k = 0; k < end; k++) {
    int code = k < weight->shape.k ? code_bits(weight, n, k) : facts->padding & ((1 << facts->bits) - 1);
    row[k / per_byte] |= (uint8_t)(code << k % per_byte * facts->bits);
  }
}

static void put_scales(const struct backend_weight *weight, uint8_t *canonical) {
  const struct gemm_layout *layout = &weight->layout.canonical;
  const struct gemm_scale_facts *facts = gemm_scale_facts(weight->shape.scale);
  int64_t height = facts->n > 0 ? facts->n : 1;
  for (uint64_t i = 0; i < layout->scale_count; i++) {
    int64_t n = (int64_t)(i / layout->scale_columns) * height, k = (int64_t)(i % layout->scale_columns) * facts->k;
    gemm_scale_put(gemm_scale_type(&weight->shape), canonical + layout->scales_offset, i,
                   (float)cpu_weight_scale(weight, n, k));
    if (facts->zeros) {
      uint64_t bytes = cpu_layout_zero_bytes(&weight->shape);
      memcpy(canonical + layout->zeros_offset + i * bytes, coded_at(weight, n, k).zero, bytes);
    }
  }
  if (facts->factors) {
    memcpy(canonical + layout->factors_offset, scales_of(weight), layout->factors_bytes);
  }
}

void cpu_weight_canonical(const struct backend_weight *weight, uint8_t *canonical) {
  const struct gemm_layout *layout = &weight->layout.canonical;
  bool packed = gemm_is_packed(weight->shape.format);
  for (int64_t n = 0; n < weight->shape.n; n++) {
    uint8_t *row = canonical + (uint64_t)n * layout->row_bytes;
    for (int64_t k = 0; !packed && k < weight->shape.k; k++) {
      put_code(weight, n, k, row);
    }
    if (packed) {
      put_packed(weight, n, row);
    }
  }
  if (weight->shape.scale != GEMM_SCALE_NONE) {
    put_scales(weight, canonical);
  }
  memcpy(canonical + layout->input_offset, weight->panels + weight->layout.input_offset, layout->input_bytes);
}
