// Two numbers of 16 bits in a register, the first one in its lower half.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>
#include <type_traits>

__device__ inline uint32_t half2_bits(__half2 value) {
  return reinterpret_cast<const uint32_t &>(value);
}

__device__ inline __half2 half2_of(uint32_t bits) {
  return reinterpret_cast<const __half2 &>(bits);
}

__device__ inline uint32_t half2_pack(float low, float high) {
  return half2_bits(__floats2half2_rn(low, high));
}

__device__ inline uint32_t half2_add(uint32_t left, uint32_t right) {
  return half2_bits(__hadd2(half2_of(left), half2_of(right)));
}

// Numbers of bf16 whose largest magnitude is below two to the power of this are scaled before they become f16, which
// has too few bits for those much smaller.
constexpr int half_least_exponent = -10;

// Of f16 or bf16.
template <typename X> __device__ inline float2 floats_of(uint32_t two) {
  if constexpr (std::is_same_v<X, __half>)
    return __half22float2(half2_of(two));
  else
    return {__uint_as_float(two << 16), __uint_as_float(two & 0xffff0000)};
}
