// f32 x as sm80/packed/kernel.cuh multiplies it: two terms of bf16, 16 bits of each element, the first of which is cut
// off, so that it does not leave the type.
#pragma once

#include "../../../device/number.cuh"
#include "../../../device/ptx.cuh"
#include "../team.cuh"

namespace sm80_packed {

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

  template <int kPart = 0, int kParts = 1>
  __device__ void load(uint32_t base, int step, split_fragment (&out)[2][kEights]) const {
    static_assert(kParts == 1, "there are few of them");
#pragma unroll
    for (int i = 0; i < 2 * kEights; i++) {
      const uint2 two = ptx::load_shared_uint2(base + at[i / 2] + step * 64 + i % 2 * 32);
      split_fragment &to = out[step % 2][i / 2];
      to.high[i % 2] = __byte_perm(two.x, two.y, 0x7632);
      const __nv_bfloat162 low = __floats2bfloat162_rn(rest(two.x), rest(two.y));
      to.low[i % 2] = reinterpret_cast<const uint32_t &>(low);
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

// Of which type W's codes become, how eights of rows of x are read, and how both are multiplied.
template <typename X> struct operand {
  using number = X;
  template <int kEights> using x = sm80::plain_x<kEights>;
};
template <> struct operand<float> {
  using number = __nv_bfloat16;
  template <int kEights> using x = split_x<kEights>;
};

__device__ inline void multiply(float (&d)[4], const uint32_t (&a)[4], const sm80::fragment &b, __half) {
  ptx::mma_f16(d, a, b.words, d);
}
__device__ inline void multiply(float (&d)[4], const uint32_t (&a)[4], const sm80::fragment &b, __nv_bfloat16) {
  ptx::mma_bf16(d, a, b.words, d);
}
__device__ inline void multiply(float (&d)[4], const uint32_t (&a)[4], const split_fragment &b, __nv_bfloat16) {
  ptx::mma_bf16(d, a, b.high, d);
  ptx::mma_bf16(d, a, b.low, d);
}

} // namespace sm80_packed
