#include "quantize.h"

#include "../number.h"
#include "processor.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* FOR_EACH_PROCESSOR: loops over rows, in arithmetic whose results do not depend on the processor. Where exceptions of
 * floating-point numbers count, which nobody asks for here, a choice between two of them is no vector instruction. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif

/* The order of positive floats is that of their bits. */
FOR_EACH_PROCESSOR
float quantize_absmax(const float *values, size_t count) {
  uint32_t most = 0;
  for (size_t i = 0; i < count; i++) {
    uint32_t bits;
    memcpy(&bits, &values[i], sizeof bits);
    bits &= 0x7fffffffu;
    most = bits > most ? bits : most;
  }
  float value;
  memcpy(&value, &most, sizeof value);
  return value;
}

FOR_EACH_PROCESSOR
bool quantize_finite(const float *values, size_t count) {
  uint32_t most = 0;
  for (size_t i = 0; i < count; i++) {
    uint32_t bits;
    memcpy(&bits, &values[i], sizeof bits);
    bits &= 0x7f800000u;
    most = bits > most ? bits : most;
  }
  return most < 0x7f800000u;
}

FOR_EACH_PROCESSOR
bool quantize_finite_halves(const uint16_t *halves, size_t count, uint16_t infinity) {
  uint16_t most = 0;
  for (size_t i = 0; i < count; i++) {
    uint16_t exponent = halves[i] & infinity;
    most = exponent > most ? exponent : most;
  }
  return most < infinity;
}

/* Adding 1.5 * 2^23 leaves no bits for a fraction: what is added to is rounded to an integer, ties to even. */
#define ROUNDER 12582912.0f

/* number_quantize_int8 of each, which clamps after dividing, too: nothing that is finite is a NaN then. */
FOR_EACH_PROCESSOR
static void quantize_scaled(const float *values, size_t count, float scale, int8_t *codes) {
  for (size_t i = 0; i < count; i++) {
    float quotient = values[i] / scale;
    quotient = quotient < 127.0f ? quotient : 127.0f;
    quotient = quotient > -127.0f ? quotient : -127.0f;
    codes[i] = (int8_t)(int32_t)(quotient + ROUNDER - ROUNDER);
  }
}

void quantize_int8(const float *values, size_t count, float scale, int8_t *codes) {
  if (scale > 0.0f)
    quantize_scaled(values, count, scale, codes);
  else
    memset(codes, 0, count);
}

static inline uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* A magnitude in a format of `mantissa` bits whose smallest normal number is 2^least, to nearest, ties to even, as if
 * exponents had no end. Below it codes are as far apart as ROUNDER's last bits are, once they are scaled. */
static inline uint32_t narrow(uint32_t magnitude, int mantissa, int least) {
  uint32_t dropped = 23 - (uint32_t)mantissa, odd = magnitude >> dropped & 1;
  uint32_t normal = ((magnitude + (1u << (dropped - 1)) - 1 + odd) >> dropped) - ((uint32_t)(126 + least) << mantissa);
  float steps = float_of((uint32_t)(127 + mantissa - least) << 23);
  uint32_t subnormal = bits_of(float_of(magnitude) * steps + ROUNDER) - bits_of(ROUNDER);
  return magnitude >= (uint32_t)(127 + least) << 23 ? normal : subnormal;
}

/* number_quantize_e4m3 of each. */
FOR_EACH_PROCESSOR
static void quantize_scaled_e4m3(const float *values, size_t count, float scale, uint8_t *codes) {
  for (size_t i = 0; i < count; i++) {
    uint32_t bits = bits_of(values[i] / scale), magnitude = bits & 0x7fffffffu;
    magnitude = magnitude < 0x43e00000u ? magnitude : 0x43e00000u; /* 448 */
    codes[i] = (uint8_t)(narrow(magnitude, 3, -6) | (bits >> 24 & 0x80u));
  }
}

void quantize_e4m3(const float *values, size_t count, float scale, uint8_t *codes) {
  if (scale > 0.0f)
    quantize_scaled_e4m3(values, count, scale, codes);
  else
    memset(codes, 0, count);
}

/* The first whose bits say that it is infinite. */
static size_t find_infinite(const uint16_t *halves, size_t count, uint16_t infinity) {
  size_t i = 0;
  while (i < count && (halves[i] & 0x7fff) != infinity)
    i++;
  return i;
}

FOR_EACH_PROCESSOR
size_t quantize_f16(const float *values, size_t count, uint16_t *out) {
  uint32_t most = 0;
  for (size_t i = 0; i < count; i++) {
    uint32_t bits = bits_of(values[i]), magnitude = bits & 0x7fffffffu;
    magnitude = magnitude < 0x47800000u ? magnitude : 0x47800000u; /* 65536: infinite */
    most = magnitude > most ? magnitude : most;
    out[i] = (uint16_t)(narrow(magnitude, 10, -14) | (bits >> 16 & 0x8000u));
  }
  return most >= 0x477ff000u ? find_infinite(out, count, 0x7c00) : count;
}

FOR_EACH_PROCESSOR
size_t quantize_bf16(const float *values, size_t count, uint16_t *out) {
  uint32_t most = 0;
  for (size_t i = 0; i < count; i++) {
    uint32_t bits = bits_of(values[i]), magnitude = bits & 0x7fffffffu;
    most = magnitude > most ? magnitude : most;
    out[i] = (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
  }
  return most >= 0x7f7f8000u ? find_infinite(out, count, 0x7f80) : count;
}

/* ---- INT2 by least squares
 *
 * For a scale s > 0 the nearest codes are known: |w| >= s/2 makes the code +-1, and w >= 3s/2 makes it 2. So as s falls
 * from infinity, the codes change at 2|w| for every element and at w/1.5 for the positive ones, at most 2 * count
 * times, and between two changes they are constant. For constant codes c the error is sum(w^2) - 2 s A + s^2 B with A =
 * sum(w c), B = sum(c^2): a parabola, whose best f16 scale is the one nearest to A / B. The best of all scales and
 * codes is thus among the best of each interval, and one walk over the sorted magnitudes sees them all. A negative
 * scale is the same walk with the signs of the elements exchanged. */

/* Sort key: the magnitude's bits (the order of positive floats is that of their bits), then the sign. */
static uint32_t key_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits << 1 | bits >> 31;
}

static double magnitude_of(uint32_t key) {
  uint32_t bits = key >> 1;
  float value;
  memcpy(&value, &bits, sizeof value);
  return (double)value;
}

/* Descending, by bytes from the lowest. `keys` and `spare` hold `count` words each; the result is in `keys`. */
static void sort_descending(uint32_t *keys, uint32_t *spare, size_t count) {
  uint32_t place[4][256] = {{0}};
  for (size_t i = 0; i < count; i++)
    for (int digit = 0; digit < 4; digit++)
      place[digit][keys[i] >> (8 * digit) & 255]++;
  for (int digit = 0; digit < 4; digit++) {
    uint32_t before = 0;
    for (int value = 255; value >= 0; value--) {
      uint32_t here = place[digit][value];
      place[digit][value] = before;
      before += here;
    }
    for (size_t i = 0; i < count; i++)
      spare[place[digit][keys[i] >> (8 * digit) & 255]++] = keys[i];
    uint32_t *sorted = spare;
    spare = keys;
    keys = sorted;
  }
}

struct fit {
  double gain;    /* error of all zeros less error of this; never negative */
  uint16_t scale; /* f16 bits */
};

/* Walks the intervals of scales whose sign is `negative`. `doubled` is the key's sign bit of elements that may reach
 * the code of magnitude 2. */
static void fit_sign(const uint32_t *keys, size_t count, bool negative, struct fit *best) {
  uint32_t doubled = negative ? 1 : 0;
  double a = 0.0, b = 0.0;
  size_t one = 0, two = 0; /* the next element to reach magnitude 1, 2 */
  for (;;) {
    while (two < count && (keys[two] & 1) != doubled)
      two++;
    double at_one = one < count ? 2.0 * magnitude_of(keys[one]) : 0.0;
    double at_two = two < count ? magnitude_of(keys[two]) / 1.5 : 0.0;
    if (at_one == 0.0 && at_two == 0.0)
      return;
    if (at_one >= at_two) {
      a += 0.5 * at_one;
      b += 1.0;
      one++;
    } else {
      a += 1.5 * at_two;
      b += 3.0;
      two++;
    }
    /* a * a / b is the gain of the scale before it is rounded: no use in rounding one that cannot win. */
    if (a * a <= best->gain * b)
      continue;
    uint16_t bits = number_to_f16((float)(a / b));
    double scale = (double)number_from_f16(bits);
    double gain = 2.0 * scale * a - scale * scale * b;
    if (gain > best->gain)
      *best = (struct fit){.gain = gain, .scale = negative ? (uint16_t)(bits | 0x8000) : bits};
  }
}

/* The nearest code of every value for a scale that is not 0. */
static void assign_codes(const float *values, size_t count, float scale, float low, float high, uint8_t *codes) {
  for (size_t i = 0; i < count; i++) {
    float code = rintf(values[i] / scale);
    code = code < low ? low : code > high ? high : code;
    codes[i] = (uint8_t)(code + 1.0f);
  }
}

uint16_t quantize_least_squares(const float *values, size_t count, uint32_t *scratch, uint8_t *codes) {
  for (size_t i = 0; i < count; i++)
    scratch[i] = key_of(values[i]);
  sort_descending(scratch, scratch + count, count);
  struct fit best = {0};
  fit_sign(scratch, count, false, &best);
  fit_sign(scratch, count, true, &best);
  if (best.scale == 0)
    memset(codes, 1, count);
  else
    assign_codes(values, count, number_from_f16(best.scale), -1.0f, 2.0f, codes);
  return best.scale;
}

uint16_t quantize_ternary(const float *values, size_t count, uint8_t *codes) {
  double sum = 0.0;
  float most = quantize_absmax(values, count);
  bool exact = true; /* the values are ternary already: nothing is to be estimated */
  for (size_t i = 0; i < count; i++) {
    sum += fabs((double)values[i]);
    exact = exact && (values[i] == 0.0f || fabsf(values[i]) == most);
  }
  uint16_t scale = number_to_f16(exact ? most : (float)(sum / (double)count));
  if (scale == 0)
    memset(codes, 1, count);
  else
    assign_codes(values, count, number_from_f16(scale), -1.0f, 1.0f, codes);
  return scale;
}

void quantize_pack(const uint8_t *codes, size_t count, uint8_t *packed, size_t packed_bytes) {
  memset(packed, 0x55, packed_bytes);
  size_t whole = count / 4;
  for (size_t i = 0; i < whole; i++) {
    const uint8_t *four = codes + 4 * i;
    packed[i] = (uint8_t)(four[0] | four[1] << 2 | four[2] << 4 | four[3] << 6);
  }
  for (size_t i = 4 * whole; i < count; i++) {
    int shift = (int)(2 * (i % 4));
    packed[i / 4] = (uint8_t)((packed[i / 4] & ~(3 << shift)) | codes[i] << shift);
  }
}
