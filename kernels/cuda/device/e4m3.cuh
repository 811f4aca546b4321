// E4M3 codes as f16, which holds them exactly, two to a register: of the four in a word, the lower or the upper two.
#pragma once

#include "fp8.cuh"
#include "half2.cuh"
#include "ptx.cuh"

#if __CUDA_ARCH__ >= 890

__device__ inline uint32_t e4m3_low(uint32_t codes) {
  return ptx::e4m3_to_f16<0>(codes);
}

__device__ inline uint32_t e4m3_high(uint32_t codes) {
  return ptx::e4m3_to_f16<1>(codes);
}

#else

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

#endif
