// E4M3 codes as f16, which holds them exactly, two to a register: of the four in a word, the lower or the upper two.
// And f32 as codes, the nearest, ties to even, 448 for what is beyond.
#pragma once

#include "fp8.cuh"
#include "half2.cuh"
#include "ptx.cuh"

#if __CUDA_ARCH__ >= 890

constexpr bool e4m3_instructions = true;

__device__ inline uint32_t e4m3_low(uint32_t codes) {
  return ptx::e4m3_to_f16<0>(codes);
}

__device__ inline uint32_t e4m3_high(uint32_t codes) {
  return ptx::e4m3_to_f16<1>(codes);
}

__device__ inline uint32_t e4m3_of_two(float low, float high) {
  return __nv_cvt_float2_to_fp8x2({low, high}, __NV_SATFINITE, __NV_E4M3);
}

#else

constexpr bool e4m3_instructions = false;

// Codes in the upper bytes of both halves. Exponents of f16 begin eight lower; a magnitude of all ones is no number.
__device__ inline uint32_t e4m3_spread(uint32_t codes) {
  const uint32_t magnitudes = (codes >> 1) & 0x3f803f80u;
  const uint32_t number = half2_bits(__hmul2(half2_of((codes & 0x80008000u) | magnitudes), __float2half2_rn(256.0f)));
  const uint32_t nan = (magnitudes + 0x00800080u) & 0x40004000u;
  return number | nan | (nan - (nan >> 5));
}

__device__ inline uint32_t e4m3_low(uint32_t codes) {
  return e4m3_spread(__byte_perm(codes, 0, 0x1404));
}

__device__ inline uint32_t e4m3_high(uint32_t codes) {
  return e4m3_spread(__byte_perm(codes, 0, 0x3424));
}

// Bits of an f32, shifted, are those of a code, but for the exponents' begin; below 2^-6 codes are multiples of 2^-9,
// as f32 of 2^14 and more are.
__device__ inline uint32_t e4m3_of(float value) {
  const uint32_t bits = __float_as_uint(value), magnitude = bits & 0x7fffffffu;
  const uint32_t tie = magnitude >> 20 & 1, most = __float_as_uint(448.0f);
  const uint32_t normal = ((min(magnitude, most) + 0x7ffffu + tie) >> 20) - (120u << 3);
  const uint32_t small = __float_as_uint(fabsf(value) + 0x1p14f) - __float_as_uint(0x1p14f);
  const uint32_t code = magnitude < __float_as_uint(0x1p-6f) ? small : normal;
  return magnitude > 0x7f800000u ? 0x7f : code | (bits >> 24 & 0x80u);
}

__device__ inline uint32_t e4m3_of_two(float low, float high) {
  return e4m3_of(low) | e4m3_of(high) << 8;
}

#endif
