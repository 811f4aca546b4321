/* Short formats to f32 and s16. Text of each micro_*.c, compiled there for its instruction set.
 *
 * A short float's bits, shifted to where f32 has them, lack the difference of the exponent biases. Its subnormals get
 * one more, which reads them as 1 + m instead of m in units of its smallest normal number, and lose that 1 again by a
 * subtraction. One multiplication by a power of two would do for both, but processors are slow with f32 subnormals. */
#ifndef KERNELS_CPU_MICRO_WIDEN_H
#define KERNELS_CPU_MICRO_WIDEN_H

#include "micro.h"

#include <string.h>

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

static void widen_f16(const uint16_t *from, float *to, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
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

static void widen_int8(const int8_t *from, int16_t *to, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    to[i] = from[i];
  }
}

static void widen_int2(const uint8_t *from, float *to, int64_t groups) {
  for (int64_t group = 0; group < groups; group++, from += 32, to += 128) {
    for (int shift = 0; shift < 4; shift++) {
      for (int byte = 0; byte < 32; byte++) {
        to[32 * shift + byte] = (float)((from[byte] >> 2 * shift & 3) - 1);
      }
    }
  }
}

#endif
