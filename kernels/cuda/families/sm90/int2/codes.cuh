// How the codes of int2/dense.cuh become 16-bit numbers of type X, two to a register: places in a word and exponents.
// number(): c + offset, by one instruction, `exponent` that of the field's place; value(): c - 1, exact, by one more.
#pragma once

#include "../../../device/number.cuh"
#include "../../../device/ptx.cuh"
#include "../../../device/wgmma.cuh"
#include "dense.cuh"

__device__ inline uint32_t int2_pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t &>(pair);
}

template <typename X> struct int2_codes;

template <> struct int2_codes<__half> {
  // What the fields f = 0..7 of a word are masked from, two numbers to a register.
  struct views {
    uint32_t word, by_8;
  };
  static __device__ inline views view(uint32_t word) {
    return {word, word >> 8};
  }
  // Twice this is where in a view the bits of a field begin.
  static constexpr int places = 4;
  static __host__ __device__ constexpr int place(int f) {
    return f % 4;
  }
  static __host__ __device__ constexpr uint32_t offset(int f) {
    return 1024 >> 2 * place(f);
  }
  // The bits that make codes at a place count from 1.
  static __host__ __device__ constexpr uint32_t exponent(int place) {
    return (25u - 2 * place) << 26 | (25u - 2 * place) << 10;
  }
  static __device__ inline uint32_t number(const views &v, int f, uint32_t exponent) {
    return ptx::select_or(f < 4 ? v.word : v.by_8, 0x00030003u << 2 * place(f), exponent);
  }
  static __device__ inline uint32_t constant(float value) {
    const __half2 pair = __float2half2_rn(value);
    return reinterpret_cast<const uint32_t &>(pair);
  }
  static __device__ inline uint32_t value(const views &v, int f) {
    return value(v, f, exponent(place(f)));
  }
  static __device__ inline uint32_t value(const views &v, int f, uint32_t exponent) {
    const uint32_t word = number(v, f, exponent), less = constant(-1.0f - offset(f));
    const __half2 out = __hadd2(reinterpret_cast<const __half2 &>(word), reinterpret_cast<const __half2 &>(less));
    return reinterpret_cast<const uint32_t &>(out);
  }
  // The product of two pairs of numbers.
  static __device__ inline uint32_t times(uint32_t left, uint32_t right) {
    const __half2 out = __hmul2(reinterpret_cast<const __half2 &>(left), reinterpret_cast<const __half2 &>(right));
    return reinterpret_cast<const uint32_t &>(out);
  }
  static __device__ inline void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                         const float (&c)[4]) {
    ptx::mma_f16(d, a, b, c);
  }
  template <int kCount>
  static __device__ inline void multiply(float (&d)[kCount], const uint32_t (&a)[4], uint64_t b, bool add) {
    ptx::wgmma_f16(d, a, b, add);
  }
};

template <> struct int2_codes<__nv_bfloat16> {
  struct views {
    uint32_t word, by_6, by_12;
  };
  static __device__ inline views view(uint32_t word) {
    return {word, word >> 6, word >> 12};
  }
  static constexpr int places = 3;
  static __host__ __device__ constexpr int place(int f) {
    return f % 3;
  }
  static __host__ __device__ constexpr uint32_t offset(int f) {
    return 128 >> 2 * place(f);
  }
  static __host__ __device__ constexpr uint32_t exponent(int place) {
    return (134u - 2 * place) << 23 | (134u - 2 * place) << 7;
  }
  static __device__ inline uint32_t number(const views &v, int f, uint32_t exponent) {
    return ptx::select_or(f < 3 ? v.word : f < 6 ? v.by_6 : v.by_12, 0x00030003u << 2 * place(f), exponent);
  }
  static __device__ inline uint32_t constant(float value) {
    return int2_pack(value, value);
  }
  static __device__ inline uint32_t value(const views &v, int f) {
    return value(v, f, exponent(place(f)));
  }
  static __device__ inline uint32_t value(const views &v, int f, uint32_t exponent) {
    const uint32_t word = number(v, f, exponent), less = constant(-1.0f - offset(f));
    const __nv_bfloat162 out =
        __hadd2(reinterpret_cast<const __nv_bfloat162 &>(word), reinterpret_cast<const __nv_bfloat162 &>(less));
    return reinterpret_cast<const uint32_t &>(out);
  }
  static __device__ inline void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                         const float (&c)[4]) {
    ptx::mma_bf16(d, a, b, c);
  }
  template <int kCount>
  static __device__ inline void multiply(float (&d)[kCount], const uint32_t (&a)[4], uint64_t b, bool add) {
    ptx::wgmma_bf16(d, a, b, add);
  }
};

template <> struct int2_codes<float> : int2_codes<__nv_bfloat16> {};
