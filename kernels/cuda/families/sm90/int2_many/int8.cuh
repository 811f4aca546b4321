// Products of int2_many/kernel.cuh where x are codes of INT8 and W is an INT2A8 weight.
//
// Codes become the bytes -64 (c - 1), signed, by one instruction behind a shift: in the upper two bits of a byte, c
// with its lower bit turned over is 1 - c as a number of two bits. So sums are exact and nothing is left to be taken
// off.
#pragma once

#include "../../../device/wgmma_between.cuh"
#include "share.cuh"

#include <cuda_fp16.h>

namespace int2_many {

constexpr float per_byte = -1.0f / 64;

// Begins the products of a group of K by x, of which this is the descriptor. words: a lane's, of int2/a8_layout.h.
template <int kCount> __device__ inline void multiply_group(int (&part)[kCount], const uint4 &words, uint64_t x) {
  const uint32_t word[4] = {words.x, words.y, words.z, words.w};
  uint32_t a[4][4];
#pragma unroll
  for (int step = 0; step < 4; step++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      a[step][i] = ptx::select_xor(word[i] << (6 - 2 * step), 0xc0c0c0c0, 0x40404040);
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

// The sums of a segment, of one warpgroup, without the scales of x. Where there are registers, codes and scales of a
// group are loaded while the products of the one before are under way.
template <typename Shape>
__device__ inline void multiply_int8(shared<Shape> &s, uint32_t &done, uint32_t end, int group,
                                     float (&sum)[4 * Shape::eights]) {
  constexpr int count = 4 * Shape::eights;
  constexpr bool ahead = Shape::eights < 14;
  const uint32_t thread = threadIdx.x % 128, lane = thread % 32;
  const uint32_t quarter = ptx::shared_address(s.w[0]) + group * s.tile_bytes + thread / 32 * INT2A8_QUARTER_BYTES;
  cursor<Shape::stages> at(done);
  uint4 words;
  uint32_t rows;
  const auto load = [&](int half) {
    const uint32_t here = quarter + at.stage * s.w_bytes;
    if (half == 0)
      ptx::barrier_wait(ptx::shared_address(&s.full[at.stage]), at.phase);
    words = ptx::load_shared_uint4(here + half * INT2A8_UNIT_BYTES + lane * 16);
    rows = ptx::load_shared(here + INT2A8_QUARTER_SCALES + half * INT2A8_UNIT_SCALES + lane / 4 * 4);
  };
#pragma unroll
  for (int i = 0; i < count; i++)
    sum[i] = 0.0f;
  if (ahead)
    load(0);
#pragma unroll 1
  for (; done < end; done++) {
    const uint32_t stage = at.stage;
    const uint64_t x = ptx::swizzled_descriptor(ptx::shared_address(s.x[stage]));
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int part[count];
      if (!ahead)
        load(half);
      multiply_group(part, words, x + half * (s.half_bytes / 16));
      float2 scale = __half22float2(reinterpret_cast<const __half2 &>(rows));
      scale.x *= per_byte, scale.y *= per_byte;
      if (half == 1 && done + 1 < end)
        at.advance();
      if (ahead)
        load(1 - half); // behind the last unit, that once more, without a jump
      ptx::wgmma_wait<0>();
      if (half == 1) {
        __syncwarp();
        if (lane == 0)
          ptx::barrier_arrive(ptx::shared_address(&s.empty[stage]));
      }
#pragma unroll
      for (int i = 0; i < count; i++) {
        ptx::keep(part[i]);
        sum[i] = fmaf(static_cast<float>(part[i]), i % 4 < 2 ? scale.x : scale.y, sum[i]);
      }
    }
  }
}

} // namespace int2_many
