// How a lane's word of 4-bit codes (int4/layout.h) becomes the four registers of a left operand of X, f16 or bf16.
#pragma once

#include "../../../device/number.cuh"
#include "../../../device/ptx.cuh"

#include <type_traits>

namespace codes4 {

template <typename X> using two_of = std::conditional_t<std::is_same_v<X, __half>, __half2, __nv_bfloat162>;

template <typename X> __device__ inline uint32_t add(uint32_t left, uint32_t right, X) {
  const two_of<X> out = __hadd2(reinterpret_cast<const two_of<X> &>(left), reinterpret_cast<const two_of<X> &>(right));
  return reinterpret_cast<const uint32_t &>(out);
}

template <typename X> __device__ inline uint32_t times(uint32_t left, uint32_t right, X) {
  const two_of<X> out = __hmul2(reinterpret_cast<const two_of<X> &>(left), reinterpret_cast<const two_of<X> &>(right));
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

// INT4 in bf16: the same times a power of two, exact. by: of row g and g + 8, twice in a word; less: times these.
__device__ inline void numbers_by(uint32_t (&a)[4], uint32_t word, const uint32_t (&by)[2], const offsets &less) {
#pragma unroll
  for (int r = 0; r < 4; r++) {
    const uint32_t code = ptx::select_or(word >> 4 * r, 0x000f000f, 0x43004300), below = r % 2 ? less.odd : less.even;
    const __nv_bfloat162 out =
        __hfma2(reinterpret_cast<const __nv_bfloat162 &>(code), reinterpret_cast<const __nv_bfloat162 &>(by[r % 2]),
                reinterpret_cast<const __nv_bfloat162 &>(below));
    a[r] = reinterpret_cast<const uint32_t &>(out);
  }
}

__device__ inline uint32_t rotated(uint32_t word, int left) {
  return __funnelshift_l(word, word, left);
}

// MXFP4: the value times 2^-14 (f16) or 2^-126 (bf16), a number below the normal ones where it is 0.5.
template <typename X> __device__ inline void e2m1_fractions(uint32_t (&a)[4], uint32_t word) {
  if constexpr (std::is_same_v<X, __half>) {
    // A product has copies of sign and number further left, of which a mask leaves one of each: no two bits meet.
    constexpr uint32_t number = 0x8e008e00;
    a[0] = ptx::select_or(word << 3, 0x0e000e00, word & 0x80008000);
    a[1] = (word & 0x02070207) * (1 << 9 | 1 << 6) & number;
    a[2] = (rotated(word, 28) & 0x81c081c0) * (1 << 3 | 1) & number;
    a[3] = ptx::select_or(word >> 3, 0x08000800, (word & 0x20302030) * (1 << 5 | 1 << 2) & 0x86008600);
  } else {
    constexpr uint32_t number = 0x81c081c0;
    a[0] = word & number;
    a[1] = word << 6 & number;
    a[2] = rotated(word, 28) & number;
    a[3] = ptx::select_or(word << 2, 0x80c080c0, word >> 6 & 0x01000100);
  }
}

// Byte `group` of four scales as 2^14 (f16) or 2^126 (bf16) times the scale, twice in a word, as far as X has it.
template <typename X> __device__ inline uint32_t e2m1_scale(uint32_t scales, int group) {
  const uint32_t byte = __byte_perm(scales, 0, 0x4440 + group);
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
