// NVFP4: a code times its scale is a number that f16 and bf16 hold as it is, but for a power of two. The factor of its
// row is left to whoever has the sums.
#pragma once

#include "codes.cuh"

namespace codes4 {

// Scales of rows g and g + 8, the lower (0) or the upper two bytes of a word: f16, or bf16 by 2^114, with which numbers
// are below 1, so that large x by them stays within f32.
template <typename X> __device__ inline uint32_t e4m3_scales(uint32_t bytes, int half) {
  constexpr bool f16 = std::is_same_v<X, __half>;
#if __CUDA_ARCH__ >= 890
  if constexpr (f16)
    return half == 0 ? ptx::e4m3_to_f16<0>(bytes) : ptx::e4m3_to_f16<1>(bytes);
#endif
  // The exponent's four bits at the end of X's: by 2^-8 or 2^-120, numbers below the normal ones with those of e4m3.
  const uint32_t two = __byte_perm(bytes, 0, half == 0 ? 0x1404 : 0x3424), signs = two & 0x80008000;
  if constexpr (f16)
    return times(ptx::select_or(two >> 1, 0x3f803f80, signs), 0x5c005c00, X()); // 2^8
  else
    return times(times(ptx::select_or(two >> 4, 0x07f007f0, signs), 0x7f007f00, X()), 0x75007500, X()); // 2^127, 2^107
}

// By what sums of numbers of e4m3_scaled are to be multiplied.
template <typename X> constexpr float e4m3_unit = std::is_same_v<X, __half> ? 16384.0f : 4096.0f;

// scales: of e4m3_scales.
template <typename X> __device__ inline void e4m3_scaled(uint32_t (&a)[4], uint32_t word, uint32_t scales) {
  uint32_t rows[2];
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\nmov.b32 %0, {low, low};\nmov.b32 %1, {high, high};\n}"
      : "=r"(rows[0]), "=r"(rows[1])
      : "r"(scales));
  e2m1_scaled<X>(a, word, rows);
}

} // namespace codes4
