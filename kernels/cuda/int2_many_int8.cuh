// Products of int2_many.cuh where x are codes of INT8 and W is an INT2A8 weight.
//
// Codes become the bytes -64 (c - 1), signed, by one instruction behind a shift: in the upper two bits of a byte, c
// with its lower bit turned over is 1 - c as a number of two bits. So sums are exact and nothing is left to be taken
// off.
#pragma once

#include "int2_many_share.cuh"
#include "wgmma.cuh"

#include <cuda_fp16.h>

namespace int2_many {

constexpr float per_byte = -1.0f / 64;

// Begins the products of a group of K by x, of which this is the descriptor. words: a lane's, of int2a8_layout.h.
template <int kCount> __device__ inline void multiply_group(int (&part)[kCount], const uint4 &words, uint64_t x) {
  const uint32_t word[4] = {words.x, words.y, words.z, words.w};
  uint32_t a[4][4];
#pragma unroll
  for (int step = 0; step < 4; step++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      a[step][i] = (word[i] << (6 - 2 * step) ^ 0x40404040) & 0xc0c0c0c0;
      ptx::keep(a[step][i]);
    }
  }
#pragma unroll
  for (int i = 0; i < kCount; i++)
    ptx::keep(part[i]);
  ptx::wgmma_fence();
#pragma unroll
  for (int step = 0; step < 4; step++)
    ptx::wgmma_s8(part, a[step], x + 2 * step, step > 0);
  ptx::wgmma_commit();
}

// The sums of a segment, of one warpgroup, without the scales of x.
template <typename Shape>
__device__ inline void multiply_int8(shared<Shape> &s, uint32_t &done, uint32_t end, int group,
                                     float (&sum)[4 * Shape::eights]) {
  constexpr int count = 4 * Shape::eights;
  cursor<Shape::stages> at(done);
  const uint32_t thread = threadIdx.x % 128;
  const uint32_t quarter = ptx::shared_address(s.w[0]) + group * s.tile_bytes + thread / 32 * INT2A8_QUARTER_BYTES;
#pragma unroll
  for (int i = 0; i < count; i++)
    sum[i] = 0.0f;
#pragma unroll 1
  for (; done < end; done++, at.advance()) {
    const uint32_t here = quarter + at.stage * s.w_bytes;
    ptx::barrier_wait(ptx::shared_address(&s.full[at.stage]), at.phase);
    const uint64_t x = ptx::swizzled_descriptor(ptx::shared_address(s.x[at.stage]));
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const uint32_t lane = ptx::thread() % 32;
      int part[count];
      multiply_group(part, ptx::load_shared_uint4(here + half * INT2A8_UNIT_BYTES + lane * 16),
                     x + half * (s.half_bytes / 16));
      const uint32_t rows = ptx::load_shared(here + INT2A8_QUARTER_SCALES + half * INT2A8_UNIT_SCALES + lane / 4 * 4);
      float2 scale = __half22float2(reinterpret_cast<const __half2 &>(rows));
      scale.x *= per_byte, scale.y *= per_byte;
      ptx::wgmma_wait<0>();
      if (half == 1 && lane == 0)
        ptx::barrier_arrive(ptx::shared_address(&s.empty[at.stage]));
#pragma unroll
      for (int i = 0; i < count; i++) {
        ptx::keep(part[i]);
        sum[i] = fmaf(static_cast<float>(part[i]), i % 4 < 2 ? scale.x : scale.y, sum[i]);
      }
    }
  }
}

} // namespace int2_many
