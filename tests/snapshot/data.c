#include "snapshot.h"

#include "proto/number.h"

#include <stdlib.h>
#include <string.h>

const struct snapshot_kind snapshot_kinds[SNAPSHOT_KINDS] = {
    {GEMM_FORMAT_INT8, GEMM_SCALE_ONE},   {GEMM_FORMAT_INT8, GEMM_SCALE_ROW},     {GEMM_FORMAT_FP8, GEMM_SCALE_ONE},
    {GEMM_FORMAT_FP8, GEMM_SCALE_ROW},    {GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK},    {GEMM_FORMAT_INT2, GEMM_SCALE_ROW},
    {GEMM_FORMAT_INT2, GEMM_SCALE_GROUP}, {GEMM_FORMAT_F16, GEMM_SCALE_NONE},     {GEMM_FORMAT_BF16, GEMM_SCALE_NONE},
    {GEMM_FORMAT_INT2A8, GEMM_SCALE_ROW}, {GEMM_FORMAT_INT2A8, GEMM_SCALE_GROUP},
};

static uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

uint64_t snapshot_random(uint64_t *state) {
  return mix(*state += 0x9e3779b97f4a7c15u);
}

uint64_t snapshot_hash(const void *data, uint64_t bytes, uint64_t seed) {
  const uint8_t *at = data;
  uint64_t hash = mix(seed ^ bytes), word;
  for (; bytes >= sizeof word; bytes -= sizeof word, at += sizeof word) {
    memcpy(&word, at, sizeof word);
    hash = mix(hash ^ word) + 0x9e3779b97f4a7c15u;
  }
  word = 0;
  memcpy(&word, at, bytes);
  return mix(hash ^ word);
}

/* ---- weights */

static uint8_t code8(enum gemm_format format, uint8_t random) {
  if (format == GEMM_FORMAT_INT8)
    return random == 0x80 ? 0x81 : random;
  return (random & 0x7f) == 0x7f ? random & 0xf0 : random; /* the NaN of e4m3 */
}

/* +-2^-8 .. +-2^-5. */
static uint16_t code16(enum gemm_format format, uint16_t random) {
  if (format == GEMM_FORMAT_F16)
    return (uint16_t)((random & 0x83ff) | (7 + (random >> 10 & 3)) << 10);
  return (uint16_t)((random & 0x807f) | (119 + (random >> 7 & 3)) << 7);
}

/* The padding of rows of 8 and 16 bits is zeros, that of 2 bits code 1. */
static void fill_row(uint8_t *row, const struct gemm_weight *shape, uint64_t row_bytes, uint64_t *state) {
  memset(row, gemm_is_int2(shape->format) ? 0x55 : 0, row_bytes);
  uint64_t word = 0;
  for (int64_t k = 0; k < shape->k; k++) {
    if (gemm_is_int2(shape->format)) {
      int shift = (int)(k % 4) * 2;
      word = k % 32 == 0 ? snapshot_random(state) : word >> 2;
      row[k / 4] = (uint8_t)((row[k / 4] & ~(3 << shift)) | (int)(word & 3) << shift);
    } else if (shape->format == GEMM_FORMAT_INT8 || shape->format == GEMM_FORMAT_FP8) {
      word = k % 8 == 0 ? snapshot_random(state) : word >> 8;
      row[k] = code8(shape->format, (uint8_t)word);
    } else {
      word = k % 4 == 0 ? snapshot_random(state) : word >> 16;
      uint16_t code = code16(shape->format, (uint16_t)word);
      memcpy(row + 2 * k, &code, sizeof code);
    }
  }
}

uint8_t *snapshot_weight(const struct gemm_weight *shape, uint64_t seed) {
  struct gemm_layout layout;
  struct error error;
  if (gemm_layout_compute(shape, &layout, &error) != STATUS_OK)
    return NULL;
  uint8_t *out = calloc(1, layout.total_bytes);
  if (out == NULL)
    return NULL;
  uint64_t state = seed;
  for (int64_t n = 0; n < shape->n; n++)
    fill_row(out + (uint64_t)n * layout.row_bytes, shape, layout.row_bytes, &state);
  uint8_t *scales = out + layout.scales_offset;
  for (uint64_t i = 0; i < layout.scale_count; i++) {
    float scale = (1 + (float)(snapshot_random(&state) >> 40) * 0x1p-24f) / 1024;
    gemm_scale_put(gemm_scale_type(shape), scales, i, gemm_is_packed(shape->format) && i % 5 == 0 ? -scale : scale);
  }
  return out;
}

/* ---- activations */

static void set(uint8_t *row, int64_t k, enum gemm_type type, float value) {
  uint16_t half = type == GEMM_F16 ? number_to_f16(value) : number_to_bf16(value);
  if (type == GEMM_F32)
    memcpy(row + 4 * k, &value, sizeof value);
  else
    memcpy(row + 2 * k, &half, sizeof half);
}

static void fill_x_row(uint8_t *row, int64_t index, int64_t k, enum gemm_type type, uint64_t *state) {
  static const float factors[] = {1, 1, 0, 1e-6f, 3e3f};
  enum { NORMAL, OUTLIERS, KINDS = 5 };
  int kind = (int)(index % KINDS);
  for (int64_t i = 0; i < k; i++) {
    uint64_t random = snapshot_random(state);
    if (type == GEMM_INT8 || type == GEMM_E4M3) {
      row[i] = code8(type == GEMM_INT8 ? GEMM_FORMAT_INT8 : GEMM_FORMAT_FP8, (uint8_t)random);
      continue;
    }
    /* four uniforms of 16 bits: about normal, variance 1/3 */
    int64_t sum = (int64_t)((random & 0xffff) + (random >> 16 & 0xffff) + (random >> 32 & 0xffff) + (random >> 48));
    float value = (float)(sum - 2 * 0xffff) * 0x1p-16f * factors[kind];
    set(row, i, type, kind == OUTLIERS && random % 64 == 0 ? value * 1000 : value);
  }
}

void snapshot_x(uint8_t *out, int64_t m, int64_t k, enum gemm_type type, uint64_t stride, uint64_t seed) {
  uint64_t state = seed;
  for (int64_t row = 0; row < m; row++)
    fill_x_row(out + (uint64_t)row * stride, row, k, type, &state);
}

void snapshot_scales(float *out, uint64_t count, uint64_t seed) {
  uint64_t state = seed;
  for (uint64_t i = 0; i < count; i++)
    out[i] = (1 + (float)(snapshot_random(&state) >> 40) * 0x1p-24f) / 64;
}

enum gemm_type snapshot_x_type(enum gemm_format format, int n) {
  for (int type = GEMM_F32;; type = type % GEMM_S32 + 1)
    if (gemm_takes_x(format, (enum gemm_type)type) && n-- <= 0)
      return (enum gemm_type)type;
}

enum gemm_type snapshot_y_type(enum gemm_format format, enum gemm_type x_type, int n) {
  for (int type = GEMM_F32;; type = type % GEMM_S32 + 1)
    if (gemm_takes_y(format, x_type, (enum gemm_type)type) && n-- <= 0)
      return (enum gemm_type)type;
}
