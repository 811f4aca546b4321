/* Between short formats and f32, and panels to dwords. Text of each micro_*.c, compiled there for its instruction set.
 *
 * A short float's bits, shifted to where f32 has them, lack the difference of the exponent biases. Its subnormals get
 * one more, which reads them as 1 + m instead of m in units of its smallest normal number, and lose that 1 again by a
 * subtraction. One multiplication by a power of two would do for both, but processors are slow with f32 subnormals. */
#pragma once

#include "micro.h"

#include <string.h>
#if defined(__F16C__)
#include <immintrin.h>
#endif

static inline float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

static inline uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

/* By the processor, where it can. */
static void widen_f16(const uint16_t *from, float *to, int64_t count) {
  int64_t i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= count; i += 16) {
    _mm512_storeu_ps(to + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(from + i))));
  }
#elif defined(__F16C__)
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + i))));
  }
#endif
  for (; i < count; i++) {
    uint32_t magnitude = (from[i] & 0x7fffu) << 13, sign = (from[i] & 0x8000u) << 16;
    uint32_t normal = magnitude + (112u << 23), special = magnitude | 0x7f800000u;
    uint32_t subnormal = bits_of(float_of(normal + (1u << 23)) - 0x1p-14f);
    uint32_t finite = magnitude < 1u << 23 ? subnormal : normal;
    to[i] = float_of(sign | (magnitude >= 0x7c00u << 13 ? special : finite));
  }
}

static void widen_bf16(const uint16_t *from, float *to, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    to[i] = float_of((uint32_t)from[i] << 16);
  }
}

static void widen_e4m3(const uint8_t *from, float *to, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    uint32_t magnitude = (from[i] & 0x7fu) << 20, sign = (from[i] & 0x80u) << 24;
    uint32_t normal = magnitude + (120u << 23);
    uint32_t subnormal = bits_of(float_of(normal + (1u << 23)) - 0x1p-6f);
    uint32_t finite = magnitude < 1u << 23 ? subnormal : normal;
    to[i] = float_of(sign | (magnitude == 0x7fu << 20 ? 0x7fc00000u : finite));
  }
}

static void widen_s8(const int8_t *from, float *to, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    to[i] = from[i];
  }
}

/* To the nearest even; NaN stays NaN. */
static void narrow_bf16(const float *from, uint16_t *to, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    uint32_t bits = bits_of(from[i]), quiet = bits >> 16 | 0x40u, rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    to[i] = (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
  }
}

/* Adding 2^(e + 13) rounds at the last bit of f16 for numbers of exponent e, at 2^-24 for its subnormals. */
static void narrow_f16(const float *from, uint16_t *to, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    uint32_t bits = bits_of(from[i]), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    uint32_t normal = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - (112u << 23)) >> 13;
    uint32_t subnormal = bits_of(float_of(magnitude) + 0x1p-1f) - 0x3f000000u;
    uint32_t finite = magnitude < 113u << 23 ? subnormal : normal;
    uint32_t beyond = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    to[i] = (uint16_t)(sign | (magnitude >= 0x477ff000u ? beyond : finite));
  }
}

static void unpack_codes2(const uint8_t *from, int width, int groups, uint32_t *to) {
  for (int group = 0; group < groups; group++, from += 2 * width) {
    for (int word = 0; word < 8; word++, from += 4 * width) {
      for (int shift = 0; shift < 8; shift += 2, to += width) {
        const uint32_t *codes = (const uint32_t *)from;
        for (int column = 0; column < width; column++) {
          to[column] = codes[column] >> shift & 0x03030303u;
        }
      }
    }
  }
}

/* ---- panels to f32, where a set has no unpacking of its own */

#ifndef OWN_UNPACKING
/* Byte i of 64 of a panel of FP8 belongs to this column of 16 and this k of 4: see layout.h. */
static inline int e4m3_column(int i) {
  return i / 16 * 4 + i % 8 / 2;
}
static inline int e4m3_k(int i) {
  return i % 16 / 8 * 2 + i % 2;
}

static void unpack_e4m3_f32(const uint8_t *from, int width, int64_t steps, float *to) {
  float values[64];
  for (int64_t step = 0; step < steps; step += 4) {
    for (int first = 0; first < width; first += 16, from += 64) {
      widen_e4m3(from, values, 64);
      for (int i = 0; i < 64; i++) {
        to[(step + e4m3_k(i)) * width + first + e4m3_column(i)] = values[i];
      }
    }
  }
}

static void unpack_bf16_f32(const uint8_t *from, int width, int64_t steps, float *to) {
  for (int64_t step = 0; step < steps; step += 2, from += 4 * width, to += 2 * width) {
    const uint32_t *pairs = (const uint32_t *)from;
    for (int column = 0; column < width; column++) {
      to[column] = float_of(pairs[column] << 16);
      to[width + column] = float_of(pairs[column] & 0xffff0000u);
    }
  }
}

static void unpack_codes2_f32(const uint8_t *from, int width, int groups, float *to) {
  float scales[MICRO_WIDTH];
  for (int group = 0; group < groups; group++, from += 34 * width) {
    widen_f16((const uint16_t *)(from + 32 * width), scales, width);
    for (int k = 0; k < MICRO_GROUP; k++, to += width) {
      const uint32_t *codes = (const uint32_t *)from + k / 16 * width;
      int shift = k % 4 * 8 + k % 16 / 4 * 2;
      for (int column = 0; column < width; column++) {
        to[column] = (float)((int32_t)(codes[column] >> shift & 3) - 1) * scales[column];
      }
    }
  }
}
#endif
