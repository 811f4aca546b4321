// Products of fp8_many/kernel.cuh where W is an INT2A8 weight: its codes go from shared memory to registers, as the
// bytes that int2_many/int8.cuh makes of them, -64 (c - 1).
//
// Sums leave the tensor cores every 128 of K, to be scaled, while these have the next.
#pragma once

#include "../../../device/wgmma_between.cuh"
#include "share.cuh"

#include <cuda_fp16.h>

namespace fp8_many {

// Of 32 of K what a matrix instruction takes.
__device__ inline void unpack(uint32_t (&out)[4], const uint4 &words, int step) {
  const uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    ptx::keep(out[i]); // what reads it is done
    out[i] = ptx::select_xor(word[i] << (6 - 2 * step), 0xc0c0c0c0, 0x40404040);
    ptx::keep(out[i]);
  }
}

// Elements [first, last) of a part whose products are done; scales: where those of the warp's rows lie, which are
// loaded when they are wanted, since there is no register to spare.
template <int kCount>
__device__ inline void add_scaled(float (&sum)[kCount], int (&part)[kCount], uint32_t scales, int first, int last) {
  constexpr float per_byte = -1.0f / 64;
  const uint32_t rows = ptx::load_shared(scales + threadIdx.x % 32 / 4 * 4);
  float2 scale = __half22float2(reinterpret_cast<const __half2 &>(rows));
  scale.x *= per_byte, scale.y *= per_byte;
#pragma unroll
  for (int i = first; i < last; i++) {
    ptx::keep(part[i]);
    sum[i] = fmaf(static_cast<float>(part[i]), i % 4 < 2 ? scale.x : scale.y, sum[i]);
  }
}

// Begins the products of 128 of K, and adds meanwhile those of the 128 ahead, if there are any.
template <int kCount>
__device__ inline void multiply_half(int (&part)[kCount], uint32_t (&a)[2][4], const uint4 &words, uint32_t x,
                                     bool others, float (&sum)[kCount], int (&other)[kCount], uint32_t other_scales) {
  constexpr int middle = kCount / 8 * 4;
#pragma unroll
  for (int step = 0; step < 4; step++) {
    ptx::wgmma_wait<1>();
    unpack(a[step % 2], words, step);
#pragma unroll
    for (int i = 0; i < kCount; i++)
      ptx::keep(part[i]);
    ptx::wgmma_fence();
    ptx::wgmma_s8(part, a[step % 2], descriptor(x + 2 * step), step > 0);
    ptx::wgmma_commit();
    if (others && step == 1)
      add_scaled(sum, other, other_scales, 0, middle);
    if (others && step == 2)
      add_scaled(sum, other, other_scales, middle, kCount);
  }
}

// The sums of so many steps of 64 rows of W. As with those of FP8, no part is under way from one turn of the loop to
// the next.
template <typename T>
__device__ inline void multiply_codes(shared<T> &s, cursor &at, uint32_t steps, int slab, float (&sum)[T::of_thread]) {
  constexpr int turn = 4;
  const uint32_t ring = ptx::shared_address(s.ring);
  const uint32_t place = slab * INT2A8_TILE_BYTES + threadIdx.x % 128 / 32 * INT2A8_QUARTER_BYTES;
  int even[T::of_thread], odd[T::of_thread];
  uint32_t a[2][4];
  const auto slot_of = [&](uint32_t stage) { return ring + stage * T::slot_bytes; };
  const auto scales_of = [&](uint32_t stage, int half) {
    return slot_of(stage) + place + INT2A8_QUARTER_SCALES + half * INT2A8_UNIT_SCALES;
  };
  const auto words_of = [&](int half) {
    return ptx::load_shared_uint4(slot_of(at.stage) + place + half * INT2A8_UNIT_BYTES + threadIdx.x % 32 * 16);
  };
  const auto step = [&](bool others) {
    const uint32_t before = at.stage;
    if (others)
      at.advance();
    ptx::barrier_wait(ptx::shared_address(&s.full[at.stage]), at.phase);
    const uint32_t x = lower_half(slot_of(at.stage) + T::x_at);
    multiply_half(even, a, words_of(0), x, others, sum, odd, scales_of(before, 1));
    if (others)
      give_back(s, before);
    multiply_half(odd, a, words_of(1), x + (T::columns * 128 >> 4), true, sum, even, scales_of(at.stage, 0));
  };
  const auto end = [&] {
    ptx::wgmma_wait<0>();
    add_scaled(sum, odd, scales_of(at.stage, 1), 0, T::of_thread);
    give_back(s, at.stage);
    at.advance();
  };
#pragma unroll 1
  for (; steps >= turn; steps -= turn) {
    step(false);
#pragma unroll
    for (int i = 1; i < turn; i++)
      step(true);
    end();
  }
#pragma unroll 1
  for (; steps > 0; steps--) {
    step(false);
    end();
  }
}

} // namespace fp8_many
