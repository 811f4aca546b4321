// The two operands of sm80/int2/kernel.cuh's matrix instructions, by the type of x: W's codes, from a lane's registers,
// and what lies of x in shared memory. A step is as much of K as an instruction takes.
#pragma once

#include "../../../device/number.cuh"
#include "../../../device/ptx.cuh"
#include "../../sm90/int2/a8_layout.h"
#include "../../sm90/int2/codes.cuh"
#include "../../sm90/int2/layout.h"
#include "../team.cuh"
#include "config.h"

namespace sm80_int2 {

using sm80::fragment;

// A lane's codes of 16 rows and a group as 16-bit numbers.
template <typename X> struct wide_codes {
  using codes = int2_codes<X>;
  typename codes::views upper[2], lower[2];

  __device__ void take(uint4 words) {
    const int2_rows first = int2_dense(words.x, words.y), second = int2_dense(words.z, words.w);
    upper[0] = codes::view(first.upper), lower[0] = codes::view(first.lower);
    upper[1] = codes::view(second.upper), lower[1] = codes::view(second.lower);
  }
  __device__ void operand(int step, uint32_t (&a)[4]) const {
    const int half = step / 4, field = step % 4 * 2;
    a[0] = codes::value(upper[half], field);
    a[1] = codes::value(lower[half], field);
    a[2] = codes::value(upper[half], field + 1);
    a[3] = codes::value(lower[half], field + 1);
  }
};

template <typename X, int kEights> struct operands {
  using codes = wide_codes<X>;
  using x = sm80::plain_x<kEights>;
  using sum = float;
  static constexpr int steps = 8, x_bytes = 2 * GEMM_GROUP, groups = SM80_INT2_GROUPS;
  static constexpr sum start = 0.0f;

  static __device__ float number(sum value) {
    return value;
  }
  static __device__ void multiply(sum (&d)[4], const uint32_t (&a)[4], const fragment &b) {
    int2_codes<X>::multiply(d, a, b.words, d);
  }
};

// Codes less one, as bytes. Sums of a group are exact, and start from a number by which their bits are those of an f32.
struct byte_codes {
  uint32_t words[4];

  __device__ void take(uint4 four) {
    words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
  }
  __device__ void operand(int step, uint32_t (&a)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; i++)
      a[i] = ((words[i] >> 2 * step & 0x03030303u) + 0x7f7f7f7fu) ^ 0x80808080u;
  }
};

template <int kEights> struct operands<int8_t, kEights> {
  using codes = byte_codes;
  using x = sm80::plain_x<kEights>;
  using sum = int;
  static constexpr int steps = 4, x_bytes = GEMM_GROUP, groups = SM80_INT2_GROUPS;
  static constexpr sum start = 0x4b400000; // 1.5 * 2^23

  static __device__ float number(sum value) {
    return __int_as_float(value) - 12582912.0f;
  }
  static __device__ void multiply(sum (&d)[4], const uint32_t (&a)[4], const fragment &b) {
    ptx::mma_s8(d, a, b.words);
  }
};

// f32 x as two terms of bf16, 16 bits of each element: the first one is cut off, so that it does not leave the type.
struct split_fragment {
  uint32_t high[2], low[2];
};

template <int kEights> struct split_x {
  using loaded = split_fragment;
  uint32_t at[kEights];

  __device__ split_x(uint32_t row_bytes, int rows) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kEights; i++)
      at[i] = min(8 * i + lane / 4, rows - 1) * row_bytes + lane % 4 * 8;
  }

  __device__ void load(uint32_t base, int step, split_fragment (&out)[2][kEights]) const {
#pragma unroll
    for (int i = 0; i < 2 * kEights; i++) {
      const uint2 two = ptx::load_shared_uint2(base + at[i / 2] + step * 64 + i % 2 * 32);
      split_fragment &to = out[step % 2][i / 2];
      to.high[i % 2] = __byte_perm(two.x, two.y, 0x7632);
      to.low[i % 2] = int2_pack(rest(two.x), rest(two.y));
    }
  }

private:
  // Nothing of an infinity, from which the term before it takes all.
  static __device__ float rest(uint32_t bits) {
    if (bits << 1 == 0xff000000u)
      return 0.0f;
    return __uint_as_float(bits) - __uint_as_float(bits & 0xffff0000u);
  }
};

template <int kEights> struct operands<float, kEights> {
  using codes = wide_codes<__nv_bfloat16>;
  using x = split_x<kEights>;
  using sum = float;
  static constexpr int steps = 8, x_bytes = 4 * GEMM_GROUP, groups = 1;
  static constexpr sum start = 0.0f;

  static __device__ float number(sum value) {
    return value;
  }
  static __device__ void multiply(sum (&d)[4], const uint32_t (&a)[4], const split_fragment &b) {
    ptx::mma_bf16(d, a, b.high, d);
    ptx::mma_bf16(d, a, b.low, d);
  }
};

} // namespace sm80_int2
