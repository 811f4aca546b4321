// How a lane's word of 4-bit codes (int4/layout.h) becomes the four registers of a left operand of X, f16 or bf16.
#pragma once

#include "../../../device/number.cuh"
#include "../../../device/ptx.cuh"

namespace codes4 {

__device__ inline uint32_t add(uint32_t left, uint32_t right, __half) {
  const __half2 out = __hadd2(reinterpret_cast<const __half2 &>(left), reinterpret_cast<const __half2 &>(right));
  return reinterpret_cast<const uint32_t &>(out);
}
__device__ inline uint32_t add(uint32_t left, uint32_t right, __nv_bfloat16) {
  const __nv_bfloat162 out =
      __hadd2(reinterpret_cast<const __nv_bfloat162 &>(left), reinterpret_cast<const __nv_bfloat162 &>(right));
  return reinterpret_cast<const uint32_t &>(out);
}

__device__ inline uint32_t times(uint32_t left, uint32_t right, __half) {
  const __half2 out = __hmul2(reinterpret_cast<const __half2 &>(left), reinterpret_cast<const __half2 &>(right));
  return reinterpret_cast<const uint32_t &>(out);
}
__device__ inline uint32_t times(uint32_t left, uint32_t right, __nv_bfloat16) {
  const __nv_bfloat162 out =
      __hmul2(reinterpret_cast<const __nv_bfloat162 &>(left), reinterpret_cast<const __nv_bfloat162 &>(right));
  return reinterpret_cast<const uint32_t &>(out);
}

// What is added to codes of row g (even registers) and of row g + 8 (odd ones) as they come out of a word.
struct offsets {
  uint32_t even, odd;
};

// Of zero points, one in each half of either.
template <typename X> __device__ inline offsets offsets_of(uint32_t even, uint32_t odd) {
  if constexpr (std::is_same_v<X, __half>)
    return {even | 0xe400e400, odd << 4 | 0xd400d400}; // -1024 - z, -64 - z
  else
    return {even | 0xc300c300, odd | 0xc300c300}; // -128 - z
}

// INT4: c - z, exact.
template <typename X> __device__ inline void numbers(uint32_t (&a)[4], uint32_t word, const offsets &less) {
  if constexpr (std::is_same_v<X, __half>) {
    const uint32_t above = word >> 8;
    a[0] = add(ptx::select_or(word, 0x000f000f, 0x64006400), less.even, X());
    a[1] = add(ptx::select_or(word, 0x00f000f0, 0x54005400), less.odd, X());
    a[2] = add(ptx::select_or(above, 0x000f000f, 0x64006400), less.even, X());
    a[3] = add(ptx::select_or(above, 0x00f000f0, 0x54005400), less.odd, X());
  } else {
#pragma unroll
    for (int r = 0; r < 4; r++)
      a[r] = add(ptx::select_or(word >> 4 * r, 0x000f000f, 0x43004300), r % 2 ? less.odd : less.even, X());
  }
}

// MXFP4: the value times 2^-14 (f16) or 2^-126 (bf16), a number below the normal ones where it is 0.5.
template <typename X> __device__ inline void e2m1_fractions(uint32_t (&a)[4], uint32_t word) {
  constexpr uint32_t sign = 0x80008000, magnitude = std::is_same_v<X, __half> ? 0x0e000e00 : 0x01c001c0;
  const uint32_t by_3 = word << 3;
  if constexpr (std::is_same_v<X, __half>) {
    a[0] = ptx::select_or(by_3, magnitude, word & sign);
    a[1] = ptx::select_or(word << 6, magnitude, by_3 & sign);
    a[2] = ptx::select_or(word << 9, magnitude, word << 1 & sign);
    a[3] = ptx::select_or(word, magnitude, word << 2 & sign);
  } else {
    a[0] = word & (sign | magnitude);
    a[1] = by_3 & (sign | magnitude);
    a[2] = ptx::select_or(word << 6, magnitude, word << 1 & sign);
    a[3] = ptx::select_or(word >> 3, magnitude, word << 2 & sign);
  }
}

// A scale's byte as 2^14 (f16) or 2^126 (bf16) times the scale, twice in a word, as far as X has it.
template <typename X> __device__ inline uint32_t e2m1_scale(uint32_t byte) {
  return std::is_same_v<X, __half> ? (byte - (127 - 15 - 14)) * 0x04000400u : (byte + 126) * 0x00800080u;
}

// scales: of e2m1_scale, of row g and of row g + 8.
template <typename X> __device__ inline void e2m1_scaled(uint32_t (&a)[4], uint32_t word, const uint32_t (&scales)[2]) {
  e2m1_fractions<X>(a, word);
#pragma unroll
  for (int r = 0; r < 4; r++)
    a[r] = times(a[r], scales[r % 2], X());
}

// By what the values of e2m1_numbers are to be multiplied.
template <typename X> constexpr float e2m1_unit = std::is_same_v<X, __half> ? 16384.0f : 1.0f;

template <typename X> __device__ inline void e2m1_numbers(uint32_t (&a)[4], uint32_t word) {
  e2m1_fractions<X>(a, word);
  if constexpr (!std::is_same_v<X, __half>)
#pragma unroll
    for (int r = 0; r < 4; r++)
      a[r] = times(a[r], 0x7e807e80, X()); // 2^126
}

} // namespace codes4
