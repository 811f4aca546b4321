#include "quantize4.h"

#include "../number.h"
#include "quantize.h"

#include <math.h>
#include <string.h>

/* ---- INT4
 *
 * For constant codes c of values w the squared error is sum(w^2) - 2 s A + s^2 B with A = sum(w c), B = sum(c^2), least
 * for s = A / B. So of several scales to begin with the codes are taken, and of what those make best the best. */

struct fit {
  double gain; /* error of all zeros less error of this */
  float scale;
  int zero;
};

static float round_scale(const struct quantize4 *how, float scale) {
  return how->bf16 ? number_from_bf16(number_to_bf16(scale)) : number_from_f16(number_to_f16(scale));
}

/* Adding 1.5 * 2^23 leaves no bits for a fraction: what is added to is rounded to an integer, ties to even. */
#define ROUNDER 12582912.0f

static int code_of(float value, float scale, int zero) {
  float quotient = value / scale, least = (float)-zero, most = (float)(15 - zero);
  quotient = quotient < least ? least : quotient > most ? most : quotient;
  return (int)(quotient + ROUNDER - ROUNDER) + zero;
}

/* A fit that begins at `scale`: the codes that it makes, and the scale that is best for these. */
static void try_scale(const struct quantize4 *how, const float *values, size_t count, float scale, int zero,
                      struct fit *best) {
  double a = 0.0, b = 0.0;
  scale = round_scale(how, scale);
  for (size_t i = 0; scale != 0.0f && i < count; i++) {
    double code = code_of(values[i], scale, zero) - zero;
    a += (double)values[i] * code;
    b += code * code;
  }
  if (b == 0.0)
    return;
  float fitted = round_scale(how, (float)(a / b));
  double gain = 2.0 * (double)fitted * a - (double)fitted * (double)fitted * b;
  if (isfinite(fitted) && fitted != 0.0f && gain > best->gain)
    *best = (struct fit){.gain = gain, .scale = fitted, .zero = zero};
}

static void search_symmetric(const struct quantize4 *how, const float *values, size_t count, float most,
                             struct fit *best) {
  for (int steps = 11; steps <= 17; steps++) { /* halves: the largest value is 5.5 to 8.5 codes from 0 */
    try_scale(how, values, count, 2.0f * most / (float)steps, 8, best);
    try_scale(how, values, count, -2.0f * most / (float)steps, 8, best);
  }
}

static int zero_point(float low, float scale) {
  float zero = rintf(-low / scale);
  return zero < 0.0f ? 0 : zero > 15.0f ? 15 : (int)zero;
}

static void search_zeros(const struct quantize4 *how, const float *values, size_t count, float low, float high,
                         struct fit *best) {
  for (int part = 20; part >= 12; part--) { /* of 20: how much of the range is kept */
    float scale = round_scale(how, (high - low) / 15.0f * (float)part / 20.0f);
    if (scale == 0.0f)
      continue;
    int zero = zero_point(low * (float)part / 20.0f, scale);
    for (int near = -1; near <= 1; near++)
      if (zero + near >= 0 && zero + near <= 15)
        try_scale(how, values, count, scale, zero + near, best);
  }
}

float quantize_int4(const struct quantize4 *how, const float *values, size_t count, uint8_t *codes, uint8_t *zero) {
  float most = quantize_absmax(values, count), low = 0.0f, high = 0.0f;
  for (size_t i = 0; i < count; i++) {
    low = values[i] < low ? values[i] : low;
    high = values[i] > high ? values[i] : high;
  }
  struct fit best = {.scale = round_scale(how, how->zeros ? high / 15.0f - low / 15.0f : most / 7.0f), .zero = 8};
  if (how->zeros && best.scale != 0.0f)
    best.zero = zero_point(low, best.scale);
  if (how->search && how->zeros)
    search_zeros(how, values, count, low, high, &best);
  else if (how->search)
    search_symmetric(how, values, count, most, &best);
  *zero = (uint8_t)best.zero;
  for (size_t i = 0; i < count; i++)
    codes[i] = (uint8_t)(best.scale != 0.0f ? code_of(values[i], best.scale, best.zero) : best.zero);
  return best.scale;
}

/* ---- MXFP4: a scale is a power of two, 2^-2 of that at or below the largest magnitude. Searched for, it is of that,
 * half and twice of it the one with the least squared error. */

static double make_mxfp4(const float *values, size_t count, float scale, uint8_t *codes) {
  double error = 0.0;
  for (size_t i = 0; i < count; i++) {
    codes[i] = number_to_e2m1(values[i] / scale);
    double off = (double)values[i] - (double)scale * (double)number_from_e2m1(codes[i]);
    error += off * off;
  }
  return error;
}

static float quantize_mxfp4(bool search, const float *values, size_t count, uint8_t *codes) {
  float most = quantize_absmax(values, count), scale = 1.0f;
  if (most > 0.0f)
    scale = number_from_e8m0(number_to_e8m0(most / 4.0f));
  double least = make_mxfp4(values, count, scale, codes);
  float best = scale;
  for (int i = 0; search && most > 0.0f && i < 2; i++) {
    float other = i == 0 ? scale / 2.0f : scale * 2.0f;
    double error = other >= 0x1p-126f ? make_mxfp4(values, count, other, codes) : (double)INFINITY;
    best = error < least ? other : best;
    least = error < least ? error : least;
  }
  (void)make_mxfp4(values, count, best, codes);
  return best;
}

/* ---- NVFP4 */

float quantize_nvfp4_factor(float absmax) {
  float factor = absmax / (6.0f * 448.0f);
  return factor >= 0x1p-126f ? factor : 0.0f;
}

/* The scale, e4m3, times the factor makes the largest magnitude 6, as near as that comes. */
static float quantize_nvfp4(float factor, const float *values, size_t count, uint8_t *codes) {
  float scale = 0.0f;
  if (factor > 0.0f)
    scale = number_from_e4m3(number_to_e4m3(quantize_absmax(values, count) / 6.0f / factor));
  for (size_t i = 0; i < count; i++)
    codes[i] = scale > 0.0f ? number_to_e2m1(values[i] / (scale * factor)) : 0;
  return scale;
}

/* ---- any */

float quantize_group4(const struct gemm_weight *weight, bool search, float factor, const float *values, size_t count,
                      uint8_t *codes, uint8_t *zero) {
  const struct quantize4 how = {
      .bf16 = gemm_scale_type(weight) == GEMM_BF16, .zeros = gemm_scale_facts(weight->scale)->zeros, .search = search};
  *zero = 0;
  if (weight->format == GEMM_FORMAT_NVFP4)
    return quantize_nvfp4(factor, values, count, codes);
  if (weight->format == GEMM_FORMAT_MXFP4)
    return quantize_mxfp4(search, values, count, codes);
  return quantize_int4(&how, values, count, codes, zero);
}

void quantize_pack4(const uint8_t *codes, size_t count, uint8_t padding, uint8_t *packed, size_t packed_bytes) {
  memset(packed, padding, packed_bytes);
  for (size_t i = 0; i + 1 < count; i += 2)
    packed[i / 2] = (uint8_t)(codes[i] | codes[i + 1] << 4);
  if (count % 2 == 1)
    packed[count / 2] = (uint8_t)((packed[count / 2] & 0xf0) | codes[count - 1]);
}
