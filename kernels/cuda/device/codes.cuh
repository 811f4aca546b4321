// Packed codes of the canonical form as f32, one at a time, and their scales.
#pragma once

#include "../../../proto/gemm.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

// Code c in the low bits of 2^23 is the number 2^23 + c.
__device__ inline float code_number(uint32_t code) {
  return __uint_as_float(0x4b000000u | code) - 8388608.0f;
}

// Each: bits of a code, the zero point where none is given, and the value of code `index` of a word, the first of which
// is in the lowest bits, less that.
struct code2 {
  static constexpr int bits = 2;
  static constexpr float zero = 1.0f;
  static __device__ inline float value(uint32_t word, int index, float zero) {
    return code_number(word >> 2 * index & 3) - zero;
  }
};

struct code4 {
  static constexpr int bits = 4;
  static constexpr float zero = 8.0f;
  static __device__ inline float value(uint32_t word, int index, float zero) {
    return code_number(word >> 4 * index & 15) - zero;
  }
};

// Has no zero points.
struct code_e2m1 {
  static constexpr int bits = 4;
  static constexpr float zero = 0.0f;
  static __device__ inline float value(uint32_t word, int index, float) {
    const uint32_t code = word >> 4 * index;
    // Exponents begin at 2^-126: what is below the normal numbers stays so until it is multiplied.
    return __uint_as_float((code & 8) << 28 | (code & 7) << 22) * 0x1p126f;
  }
};

// Scale i of a packed weight.
__device__ inline float code_scale(const void *scales, int64_t i, gemm_type type) {
  if (type == GEMM_E8M0) {
    const uint32_t bits = static_cast<uint32_t>(static_cast<const uint8_t *>(scales)[i]) << 23;
    return __uint_as_float(max(bits, 0x00400000u)); // 0 is 2^-127
  }
  if (type == GEMM_E4M3) {
    const uint32_t bits = static_cast<const uint8_t *>(scales)[i];
    return __uint_as_float((bits & 0x80) << 24 | (bits & 0x7f) << 20) * 0x1p120f;
  }
  if (type == GEMM_F16)
    return __half2float(static_cast<const __half *>(scales)[i]);
  return __bfloat162float(static_cast<const __nv_bfloat16 *>(scales)[i]);
}

// Zero point i.
__device__ inline float code_zero(const void *zeros, int64_t i, bool f16) {
  return f16 ? __half2float(static_cast<const __half *>(zeros)[i]) : static_cast<const uint8_t *>(zeros)[i];
}
