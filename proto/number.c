#include "number.h"

#include <float.h>
#include <math.h>
#include <string.h>

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* A short format: `mantissa` stored bits, the exponent of its smallest normal number, and 2 to the difference of
 * f32's exponent bias and its own. */
struct format {
  int mantissa, exponent_min;
  float scale;
};
static const struct format f16 = {10, -14, 0x1p112f};
static const struct format e4m3 = {3, -6, 0x1p120f};

/* Rounds a finite magnitude to the nearest code, ties to even, as if the format's exponent had no end: the caller
 * deals with overflow. Integer arithmetic, so the rounding mode of the thread does not matter. */
static uint32_t narrow(uint32_t magnitude, struct format format) {
  int exponent = (int)(magnitude >> 23) - 127;
  uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
  if (exponent == -127)
    return 0; /* zero or an f32 subnormal, far below half of any code */
  int shift = 23 - format.mantissa;
  uint32_t base = 0;
  if (exponent < format.exponent_min)
    shift += format.exponent_min - exponent;
  else
    base = (uint32_t)(exponent - format.exponent_min) << format.mantissa;
  if (shift > 24)
    return 0;
  uint32_t kept = significand >> shift;
  uint32_t rest = significand & ((1u << shift) - 1u), half = 1u << (shift - 1);
  /* A carry out of the mantissa lands in the exponent, which is the next code. */
  return base + kept + (rest > half || (rest == half && (kept & 1u)));
}

/* The reverse, exact. `code` has no sign and is finite. Read as the bits of an f32 the code is a power of two too
 * small, subnormals included. */
static float widen(uint32_t code, struct format format) {
  return float_of(code << (23 - format.mantissa)) * format.scale;
}

float number_from_f16(uint16_t bits) {
  uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u)
    return float_of(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  return float_of(sign | bits_of(widen(magnitude, f16)));
}

uint16_t number_to_f16(float value) {
  uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffffu, sign = bits >> 16 & 0x8000u;
  if (magnitude > 0x7f800000u)
    return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  uint32_t code = narrow(magnitude, f16);
  return (uint16_t)(sign | (code < 0x7c00u ? code : 0x7c00u));
}

float number_from_bf16(uint16_t bits) {
  return float_of((uint32_t)bits << 16);
}

uint16_t number_to_bf16(float value) {
  uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return (uint16_t)(bits >> 16 | 0x40u);
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

float number_from_e4m3(uint8_t bits) {
  uint32_t sign = (uint32_t)(bits & 0x80u) << 24, magnitude = bits & 0x7fu;
  if (magnitude == 0x7fu)
    return float_of(sign | 0x7fc00000u);
  return float_of(sign | bits_of(widen(magnitude, e4m3)));
}

uint8_t number_to_e4m3(float value) {
  uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffffu, sign = bits >> 24 & 0x80u;
  if (magnitude > 0x7f800000u)
    return (uint8_t)(sign | 0x7fu);
  uint32_t code = narrow(magnitude, e4m3);
  return (uint8_t)(sign | (code < 0x7eu ? code : 0x7eu));
}

float number_from_e8m0(uint8_t bits) {
  return float_of(bits == 0 ? 0x00400000u : bits == 0xff ? 0x7fc00000u : (uint32_t)bits << 23);
}

uint8_t number_to_e8m0(float value) {
  return (uint8_t)(bits_of(value) >> 23 & 0xffu);
}

static const float e2m1[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};

float number_from_e2m1(uint8_t bits) {
  return bits & 8 ? -e2m1[bits & 7] : e2m1[bits & 7];
}

/* Steps are 0.5 up to 2, 1 up to 4 and 2 beyond; a tie goes to the even one of two codes. */
uint8_t number_to_e2m1(float value) {
  float magnitude = fabsf(value) < 6.0f ? fabsf(value) : 6.0f;
  float steps = magnitude < 2.0f ? magnitude * 2.0f : magnitude < 4.0f ? magnitude : magnitude / 2.0f;
  int before = magnitude < 2.0f ? 0 : magnitude < 4.0f ? 2 : 4;
  return (uint8_t)((int)(steps + 12582912.0f - 12582912.0f) + before + (int)(bits_of(value) >> 31 << 3));
}

static float scale_of(float absmax, float most) {
  if (!isfinite(absmax))
    return float_of(0x7fc00000u);
  float scale = absmax / most;
  return scale < FLT_MIN ? 0.0f : scale;
}

float number_scale_int8(float absmax) {
  return scale_of(absmax, 127.0f);
}

float number_scale_e4m3(float absmax) {
  return scale_of(absmax, 448.0f);
}

int8_t number_quantize_int8(float value, float scale) {
  if (!(scale > 0.0f))
    return 0;
  float quotient = value / scale;
  if (quotient >= 127.0f)
    return 127;
  if (quotient <= -127.0f)
    return -127;
  if (isnan(quotient))
    return 0;
  /* Adding 1.5 * 2^23 leaves no bits for a fraction: the sum is rounded to an integer, ties to even. */
  return (int8_t)(quotient + 12582912.0f - 12582912.0f);
}

uint8_t number_quantize_e4m3(float value, float scale) {
  return scale > 0.0f ? number_to_e4m3(value / scale) : 0;
}
