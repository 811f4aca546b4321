// What the matrix instructions of sm80/rows/kernel.cuh multiply, by format: 32 of K at a time.
#pragma once

#include "../../../device/e4m3.cuh"
#include "../team.cuh"

namespace sm80_rows {

using sm80::fragment;

template <bool kIntegers> struct operands {
  using sum = int;
  struct left {
    uint32_t words[4];
  };
  using right = fragment;

  static __device__ left left_of(const uint32_t (&words)[4]) {
    return {words[0], words[1], words[2], words[3]};
  }
  static __device__ right right_of(const fragment &x) {
    return x;
  }
  static __device__ void multiply(int (&d)[4], const left &a, const right &b) {
    ptx::mma_s8(d, a.words, b.words);
  }
};

// FP8 codes as f16: of four neighbours of K the first two are one instruction's, the others the next's, on both sides.
template <> struct operands<false> {
  using sum = float;
  struct left {
    uint32_t words[2][4];
  };
  struct right {
    uint32_t words[2][2];
  };

  static __device__ left left_of(const uint32_t (&words)[4]) {
    left out;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      out.words[i / 2][i % 2] = e4m3_low(words[i]);
      out.words[i / 2][i % 2 + 2] = e4m3_high(words[i]);
    }
    return out;
  }
  static __device__ right right_of(const fragment &x) {
    return {{{e4m3_low(x.words[0]), e4m3_high(x.words[0])}, {e4m3_low(x.words[1]), e4m3_high(x.words[1])}}};
  }
  static __device__ void multiply(float (&d)[4], const left &a, const right &b) {
    ptx::mma_f16(d, a.words[0], b.words[0], d);
    ptx::mma_f16(d, a.words[1], b.words[1], d);
  }
};

} // namespace sm80_rows
