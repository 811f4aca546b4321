// What the sums of a group start from in narrow tiles of int2_many.cuh: there a code c becomes c + 2^i by one
// instruction (int2_codes.cuh), and minus the sum of (2^i + 1) x, which sums start from, leaves c - 1. Two warps that
// would have nothing to do compute it, of every second unit each.
#pragma once

#include "int2_codes.cuh"
#include "int2_many_share.cuh"

namespace int2_many {

constexpr int starting = 2;    // warps
constexpr int start_quad = 16; // bytes

template <typename Shape> __device__ inline void produce_starts(const work &w, shared<Shape> &s, uint32_t first) {
  using codes = int2_codes<typename Shape::number>;
  constexpr int steps = GEMM_GROUP / 16;
  static_assert(Shape::columns == 16, "rows of x are those of one operand");
  const uint32_t lane = threadIdx.x % 32, row = lane % 16, g = lane / 4, q = lane % 4;
  uint32_t less[4][2];
#pragma unroll
  for (int step = 0; step < 4; step++)
#pragma unroll
    for (int i = 0; i < 2; i++)
      less[step][i] = codes::constant(-1.0f - codes::offset(step + 4 * i));
  // Columns 2 q and 2 q + 1 of eight are twice in a quad for the lanes of a warpgroup whose number % 4 is q.
  const uint32_t column = 8 * q + g, to = column / 2 * start_quad + column % 2 * 4;
  const uint32_t all = units_of(w, blockIdx.x);
  cursor<Shape::stages> at(first);
#pragma unroll 1
  for (uint32_t done = first; done < all; done += starting) {
    ptx::barrier_wait(ptx::shared_address(&s.start.x_full[at.stage]), at.phase);
    const uint32_t x = ptx::shared_address(s.x[at.stage]) + row * 128;
    uint32_t rows[steps][4];
#pragma unroll
    for (int step = 0; step < steps; step++)
      ptx::load_matrices(rows[step], x + step / 4 * s.half_bytes + (2 * (step % 4) + lane / 16 ^ row % 8) * 16);
    float sum[2][4] = {};
#pragma unroll
    for (int step = 0; step < steps; step++)
      codes::multiply(sum[step % 2], rows[step], less[step % 4], sum[step % 2]);
    if (q < 2) {
      const uint32_t value = __float_as_uint(q ? sum[0][2] + sum[1][2] : sum[0][0] + sum[1][0]);
      const uint32_t quads = ptx::shared_address(s.start.quads[at.stage]);
      ptx::store_shared(quads + to, value);
      ptx::store_shared(quads + to + 8, value);
    }
    ptx::barrier_arrive(ptx::shared_address(&s.full[at.stage]));
#pragma unroll
    for (int i = 0; i < starting; i++)
      at.advance();
  }
}

// quads: of the unit, the lane's of the first eight columns.
template <int kEights> __device__ inline void load_starts(float (&part)[4 * kEights], uint32_t quads) {
#pragma unroll
  for (int t = 0; t < kEights; t++) {
    const int4 four = ptx::load_shared_int4(quads + t * 4 * start_quad);
    part[4 * t] = __int_as_float(four.x), part[4 * t + 1] = __int_as_float(four.y);
    part[4 * t + 2] = __int_as_float(four.z), part[4 * t + 3] = __int_as_float(four.w);
  }
}

} // namespace int2_many
