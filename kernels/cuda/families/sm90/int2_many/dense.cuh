// Products of int2_many/kernel.cuh with W unpacked: a warpgroup makes of its codes the numbers c - 1, exact in 16 bits,
// in the order in which the matrix instruction takes W from registers; sums of a group are scaled when they leave it.
// In wide tiles of f16 the numbers are, before.
#pragma once

#include "../../../device/wgmma_between.cuh"
#include "../int2/codes.cuh"
#include "share.cuh"

namespace int2_many {

// Of half a group's codes of each of a lane's two rows: what four matrix instructions take.
struct operand {
  uint32_t a[4][4];
};

template <typename X>
__device__ inline void unpack(operand &out, const int2_rows &rows, const uint32_t (&exponents)[int2_codes<X>::places]) {
  using codes = int2_codes<X>;
  const auto above = codes::view(rows.upper), below = codes::view(rows.lower);
#pragma unroll
  for (int f = 0; f < 8; f++) {
    const uint32_t exponent = exponents[codes::place(f)];
    out.a[f / 2][f % 2 * 2] = codes::value(above, f, exponent);
    out.a[f / 2][f % 2 * 2 + 1] = codes::value(below, f, exponent);
  }
}

__device__ inline void keep(operand &operand) {
#pragma unroll
  for (int s = 0; s < 4; s++)
    keep(operand.a[s]);
}

// Begins the products of 64 of K by x, of which this is the descriptor.
template <typename X, int kEights>
__device__ inline void multiply_half(float (&part)[4 * kEights], operand &codes, uint64_t x, bool add) {
  keep(codes);
  keep(part);
  ptx::wgmma_fence();
#pragma unroll
  for (int s = 0; s < 4; s++)
    int2_codes<X>::multiply(part, codes.a[s], x + 2 * s, add || s > 0);
  ptx::wgmma_commit();
}

// Adds what instructions have left, times two rows' scales.
template <int kCount> __device__ inline void add_scaled(float (&sum)[kCount], float (&part)[kCount], uint32_t rows) {
  const float2 scale = __half22float2(reinterpret_cast<const __half2 &>(rows));
#pragma unroll
  for (int i = 0; i < kCount; i++) {
    ptx::keep(part[i]);
    sum[i] = fmaf(part[i], i % 4 < 2 ? scale.x : scale.y, sum[i]);
  }
}

// What a thread needs for each unit: where its codes and its rows' scales are in a stage, and what its codes count
// from. Kept, not computed again in the loop, where every instruction counts.
template <typename Shape> struct dense_constants {
  using number = int2_codes<typename Shape::number>;
  uint32_t codes, scales; // scales: by the codes
  uint32_t exponents[number::places];

  __device__ dense_constants(const work &, const shared<Shape> &s) {
    const uint32_t thread = threadIdx.x % 128, w = ptx::shared_address(s.w[0]);
    const uint32_t first = codes_of(w + threadIdx.x / 128 * INT2_TILE_BYTES, thread);
    codes = ptx::held(first), scales = ptx::held(scales_by(first, thread) - first);
#pragma unroll
    for (int i = 0; i < number::places; i++)
      exponents[i] = ptx::held(number::exponent(i));
  }
};

// The sums of a segment, of one warpgroup.
template <typename Shape>
__device__ inline void multiply_dense(shared<Shape> &s, uint32_t &done, uint32_t end,
                                      const dense_constants<Shape> &lane, float (&sum)[4 * Shape::eights]) {
  using X = typename Shape::number;
  constexpr int kEights = Shape::eights;
  cursor<Shape::stages> at(done);
  const uint64_t x_first = ptx::swizzled_descriptor(ptx::shared_address(s.x[0]));
#pragma unroll
  for (int i = 0; i < 4 * kEights; i++)
    sum[i] = 0.0f;
#pragma unroll 1
  for (; done < end; done++, at.advance()) {
    ptx::barrier_wait(ptx::shared_address(&s.full[at.stage]), at.phase);
    const uint32_t here = lane.codes + at.stage * s.w_bytes;
    uint2 words = ptx::load_shared_uint2(here);
    const uint32_t rows = ptx::load_shared(here + lane.scales);
    const uint64_t x = x_first + at.stage * (s.x_bytes / 16);
    operand first, second;
    float part[4 * kEights];
    unpack<X>(first, int2_dense(words.x, words.y), lane.exponents);
    multiply_half<X, kEights>(part, first, x, false);
    words = ptx::load_shared_uint2(here + 8); // not before, where 64 columns would run out of registers
    unpack<X>(second, int2_dense(words.x, words.y), lane.exponents);
    multiply_half<X, kEights>(part, second, x + s.half_bytes / 16, true);
    ptx::wgmma_wait<0>();
    add_scaled(sum, part, rows);
    ptx::barrier_arrive(ptx::shared_address(&s.empty[at.stage]));
  }
}

// ---- the same of wide tiles

// Of a step of 16 of K: what one matrix instruction takes.
template <typename X> __device__ inline void unpack(uint32_t (&out)[4], const int2_rows &rows, int step) {
  using codes = int2_codes<X>;
  const auto above = codes::view(rows.upper), below = codes::view(rows.lower);
  out[0] = codes::value(above, 2 * step), out[1] = codes::value(below, 2 * step);
  out[2] = codes::value(above, 2 * step + 1), out[3] = codes::value(below, 2 * step + 1);
}

template <typename X, int kEights>
__device__ inline void multiply_step(float (&part)[4 * kEights], uint32_t (&codes)[4], uint64_t x, bool add) {
  keep(codes);
  keep(part);
  ptx::wgmma_fence();
  int2_codes<X>::multiply(part, codes, x, add);
  ptx::wgmma_commit();
}

// The sums of a segment once more: of more columns, for which there are registers because codes are unpacked step by
// step, each while the product of the one before is under way; another warpgroup's is behind that.
template <typename Shape>
__device__ inline void multiply_wide(shared<Shape> &s, uint32_t &done, uint32_t end, int group,
                                     float (&sum)[4 * Shape::eights]) {
  using X = typename Shape::number;
  constexpr int kEights = Shape::eights;
  const uint32_t words = codes_of(ptx::shared_address(s.w[0]) + group * INT2_TILE_BYTES, threadIdx.x % 128);
#pragma unroll
  for (int i = 0; i < 4 * kEights; i++)
    sum[i] = 0.0f;
  cursor<Shape::stages> at(done);
  uint32_t codes[2][4];
  int2_rows half;
  const auto load_half = [&](uint32_t from) {
    const uint2 two = ptx::load_shared_uint2(from);
    half = int2_dense(two.x, two.y);
  };
  const auto begin = [&] {
    ptx::barrier_wait(ptx::shared_address(&s.full[at.stage]), at.phase);
    load_half(words + at.stage * s.w_bytes);
    unpack<X>(codes[0], half, 0);
  };
  begin();
#pragma unroll 1
  for (; done < end; done++) {
    constexpr int steps = GEMM_GROUP / 16;
    const uint32_t stage = at.stage;
    const uint64_t x = ptx::swizzled_descriptor(ptx::shared_address(s.x[stage]));
    float part[4 * kEights];
#pragma unroll
    for (int step = 0; step < steps; step++) {
      multiply_step<X, kEights>(part, codes[step % 2], x + step / 4 * (s.half_bytes / 16) + 2 * (step % 4), step > 0);
      if (step + 1 == steps)
        break;
      if (step == 3)
        load_half(words + stage * s.w_bytes + 8);
      ptx::wgmma_wait<1>();
      unpack<X>(codes[(step + 1) % 2], half, (step + 1) % 4);
    }
    const uint32_t thread = ptx::thread() % 128, scales = scales_by(words, thread);
    const uint32_t rows = ptx::load_shared(scales + stage * s.w_bytes);
    ptx::wgmma_wait<1>();
    if (done + 1 < end)
      at.advance();
    begin(); // of the last unit once more: a jump would have addresses computed in each lane
    ptx::wgmma_wait<0>();
    add_scaled(sum, part, rows);
    ptx::barrier_arrive(ptx::shared_address(&s.empty[stage]));
  }
}

// ---- the same of f16 in wide tiles

// The sums of a segment once more, of a weight with large scales the half of them: scales go to the numbers c - 1
// before the products, for which f16 has the bits, so that sums stay where the matrix instruction adds to them.
template <typename Shape>
__device__ inline void multiply_scaled(shared<Shape> &s, uint32_t &done, uint32_t end, int group, bool large_scales,
                                       float (&sum)[4 * Shape::eights]) {
  using place = cursor<Shape::stages>;
  using f16 = int2_codes<__half>;
  constexpr int steps = GEMM_GROUP / 16;
  const uint32_t tile = ptx::shared_address(s.w[0]) + group * INT2_TILE_BYTES, thread = threadIdx.x % 128;
  const uint32_t row_codes = codes_of(0, thread), row_scales = scales_by(row_codes, thread);
  const uint32_t times = large_scales ? 0x38003800 : 0x3c003c00;
#pragma unroll
  for (int i = 0; i < 4 * Shape::eights; i++)
    sum[i] = 0.0f;
  uint32_t codes[2][4];
  place at(done);
  int before = -1; // the stage whose last products may still be under way
#pragma unroll 1
  for (; done < end; done++, at.advance()) {
    const uint32_t w = tile + at.stage * s.w_bytes;
    ptx::barrier_wait(ptx::shared_address(&s.full[at.stage]), at.phase);
    const uint4 words = ptx::load_shared_uint4(w + row_codes);
    const int2_rows rows[2] = {int2_dense(words.x, words.y), int2_dense(words.z, words.w)};
    const uint32_t two = f16::times(ptx::load_shared(w + row_scales), times);
    const uint32_t upper = __byte_perm(two, 0, 0x1010), lower = __byte_perm(two, 0, 0x3232);
    const uint64_t x = ptx::swizzled_descriptor(ptx::shared_address(s.x[at.stage]));
#pragma unroll
    for (int step = 0; step < steps; step++) {
      uint32_t(&out)[4] = codes[step % 2];
      ptx::wgmma_wait<1>();
      keep(out);
      unpack<__half>(out, rows[step / 4], step % 4);
      out[0] = f16::times(out[0], upper), out[1] = f16::times(out[1], lower);
      out[2] = f16::times(out[2], upper), out[3] = f16::times(out[3], lower);
      multiply_step<__half, Shape::eights>(sum, out, x + step / 4 * (s.half_bytes / 16) + 2 * (step % 4), true);
      if (step == 1 && before >= 0)
        ptx::barrier_arrive(ptx::shared_address(&s.empty[before]));
    }
    before = at.stage;
  }
  ptx::wgmma_wait<0>();
  keep(sum);
  ptx::barrier_arrive(ptx::shared_address(&s.empty[before]));
}

} // namespace int2_many
