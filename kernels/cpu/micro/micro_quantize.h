/* The element rules of proto/number.h for many elements at once, the same codes bit for bit. Text of each micro_*.c,
 * compiled there for its instruction set. */
#pragma once

#include "../../../proto/rotate.h"
#include "micro_widen.h"

/* Magnitudes are ordered as their bits are, and NaN comes last. */
static float largest(const float *values, int64_t count) {
  int32_t most = 0;
  for (int64_t i = 0; i < count; i++) {
    int32_t magnitude = (int32_t)(bits_of(values[i]) & 0x7fffffffu);
    most = magnitude > most ? magnitude : most;
  }
  return float_of((uint32_t)most);
}

static inline float clamp_127(float value) {
  value = value > 127.0f ? 127.0f : value;
  return value < -127.0f ? -127.0f : value;
}

/* Adding 1.5 * 2^23 leaves no bits for a fraction: the addition rounds to the nearest even integer, which the low
 * bits of the sum then are. Unlike a conversion this is defined for every input. */
#define TO_INTEGER 0x1.8p23f

static inline int8_t code_int8(float quotient) {
  return (int8_t)((int32_t)bits_of(quotient + TO_INTEGER) - 0x4b400000);
}

/* The quotient by a division, which the rule asks for, and the product with the reciprocal differ by less than
 * 127 * 2^-22, so that their codes differ only where the product is about as near to a tie. The division, four times as
 * slow, is for blocks that have such a one. How near is compared as integers: a comparison of floats may trap, and
 * keeps the compiler from doing several at once. */
static void quantize_int8(const float *values, float scale, int8_t *to, int64_t count) {
  enum { BLOCK = 64 };
  const int32_t tie = (int32_t)bits_of(0.4999f);
  float reciprocal = 1 / scale;
  for (int64_t first = 0; first < count; first += BLOCK, values += BLOCK, to += BLOCK) {
    int some = (int)(count - first < BLOCK ? count - first : BLOCK);
    int32_t most = 0;
    if (some == BLOCK) {
      for (int i = 0; i < BLOCK; i++) {
        float product = clamp_127(values[i] * reciprocal);
        float off = product - ((product + TO_INTEGER) - TO_INTEGER);
        int32_t magnitude = (int32_t)(bits_of(off) & 0x7fffffffu);
        most = magnitude > most ? magnitude : most;
        to[i] = code_int8(product);
      }
      if (most <= tie) {
        continue;
      }
    }
    for (int i = 0; i < some; i++) {
      to[i] = code_int8(clamp_127(values[i] / scale));
    }
  }
}

/* Below e4m3's smallest normal number its quantum is 2^-9, f32's at 2^14; above, three bits of mantissa remain. */
static void quantize_e4m3(float *values, float scale, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    float quotient = values[i] / scale;
    uint32_t sign = bits_of(quotient) & 0x80000000u, magnitude = bits_of(quotient) & 0x7fffffffu;
    uint32_t normal = (magnitude + 0x7ffffu + (magnitude >> 20 & 1u)) & 0xfff00000u;
    uint32_t subnormal = bits_of((float_of(magnitude) + 0x1p14f) - 0x1p14f);
    uint32_t rounded = magnitude < 0x3c800000u ? subnormal : normal;
    values[i] = float_of(sign | (rounded > 0x43e00000u ? 0x43e00000u : rounded));
  }
}

static int32_t sum_s8(const int8_t *values, int64_t count) {
  int32_t sum = 0;
  for (int64_t i = 0; i < count; i++) {
    sum += values[i];
  }
  return sum;
}

/* Whole panels apart, so that the compiler knows how many columns there are. */
#define FINISH_ROWS(type, body)                                                                                        \
  for (int row = 0; row < finish->rows; row++) {                                                                       \
    const type *sums = (const type *)finish->sums + row * MICRO_WIDTH;                                                 \
    const float *scales = finish->scales, *bias = finish->bias;                                                        \
    double factor = finish->factors[row];                                                                              \
    float narrow = (float)factor, *to = finish->to + row * finish->stride;                                             \
    (void)bias, (void)narrow;                                                                                          \
    if (finish->columns == 32) {                                                                                       \
      for (int i = 0; i < 32; i++) {                                                                                   \
        to[i] = body;                                                                                                  \
      }                                                                                                                \
      continue;                                                                                                        \
    }                                                                                                                  \
    for (int i = 0; i < finish->columns; i++) {                                                                        \
      to[i] = body;                                                                                                    \
    }                                                                                                                  \
  }

static void finish_s32(const struct micro_finish *finish) {
  FINISH_ROWS(int32_t, (float)sums[i] * (narrow * scales[i]))
}

static void finish_f32(const struct micro_finish *finish) {
  FINISH_ROWS(float, sums[i] * (narrow * scales[i]))
}

static void finish_s32_wide(const struct micro_finish *finish) {
  FINISH_ROWS(int32_t, (float)((double)sums[i] * (factor * (double)scales[i]) + (double)bias[i]))
}

static void finish_f32_wide(const struct micro_finish *finish) {
  FINISH_ROWS(float, (float)((double)sums[i] * (factor * (double)scales[i]) + (double)bias[i]))
}
