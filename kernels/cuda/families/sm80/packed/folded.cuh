// INT2 weights and many rows of f16 x: codes times their rows' scales are the left operand, so that the sums of all of
// K are all that takes registers, and a warp has twice as many rows of W for what it reads of x.
//
// Warps of a block are not in step: one may be ahead of another by a group of K. Each asks for its copies between its
// matrix instructions, and writes the sums of its rows by itself, by what it has read of W, which no other warp reads.
#pragma once

#include "int2.cuh"
#include "kernel.cuh"

namespace sm80_packed {

// Which of two scales are 2^15 or more: products with them may be beyond halves. They are cut in two, and what they
// belong to is multiplied twice.
__device__ inline uint32_t large_scales(uint32_t pair) {
  return ((pair & 0x7800) == 0x7800 ? 0xffff : 0) | ((pair & 0x78000000) == 0x78000000 ? 0xffff0000 : 0);
}

// A lane's of a group. Returns whether there are large ones in the warp's: of these halves, and for the second time
// nothing of the others.
template <int kUnits> __device__ inline bool load_scales(uint32_t (&out)[kUnits], uint32_t from, bool again) {
  uint32_t large = 0;
#pragma unroll
  for (int u = 0; u < kUnits; u++) {
    out[u] = ptx::load_shared(from + u * SM80_PACKED_INT2_BYTES);
    large |= large_scales(out[u]);
  }
  if (!__any_sync(0xffffffff, large != 0))
    return false;
#pragma unroll
  for (int u = 0; u < kUnits; u++) {
    const uint32_t of = large_scales(out[u]), rest = again ? 0 : out[u] & ~of;
    out[u] = rest | (int2_codes<__half>::times(out[u], 0x38003800) & of);
  }
  return true;
}

constexpr int folded_x_bytes = GEMM_GROUP * 2 + SM80_PACKED_PADDING; // of a row of a group

// A group's products, by where a lane reads x; between(step) is called behind each step's loads. Rows behind the last
// one are whatever lies there: nobody reads their sums.
template <int kEights, int kUnits, typename F>
__device__ inline void multiply_folded(float (&sums)[kUnits][kEights][4], uint32_t x_at,
                                       const int2_numbers<__half> (&codes)[kUnits], const uint32_t (&scales)[kUnits],
                                       F between) {
#pragma unroll
  for (int step = 0; step < int2_numbers<__half>::steps; step++) {
    uint32_t b[kEights / 2][4];
#pragma unroll
    for (int i = 0; i < kEights / 2; i++)
      ptx::load_matrices(b[i], x_at + i * 16 * folded_x_bytes + step * 32);
    between(step);
#pragma unroll
    for (int u = 0; u < kUnits; u++) {
      uint32_t a[4];
      codes[u].operand(step, a);
#pragma unroll
      for (int i = 0; i < 4; i++)
        a[i] = int2_codes<__half>::times(a[i], __byte_perm(scales[u], 0, i % 2 ? 0x3232 : 0x1010));
#pragma unroll
      for (int i = 0; i < kEights; i++)
        ptx::mma_f16(sums[u][i], a, {b[i / 2][i % 2 * 2], b[i / 2][i % 2 * 2 + 1]}, sums[u][i]);
    }
  }
}

template <int kEights, int kUnits>
__global__ void __launch_bounds__(kEights == 8 ? 256 : 384, 1) run_folded(const __grid_constant__ work w) {
  extern __shared__ __align__(16) uint8_t raw[];
  using weight = weight2<__half, 1>;
  const seat at(w.n_warps);
  const int m = static_cast<int>(w.product.m);
  const share own = share_of(w.plan.shares, static_cast<int>(blockIdx.x));
  source<weight, kUnits> next(w, at, own);
  ring to(ptx::shared_address(raw), 0, w.plan.stages, w.plan.slot_bytes), from = to;
  const int ahead = w.plan.stages - 2;
  sm80::turns turns(w.n_warps);
  sm80::fill(next, to, ahead, w.dependent);
  const int x_offset = (at.lane / 16 * 8 + at.lane % 8) * folded_x_bytes + at.lane / 8 % 2 * 16;
  const int w_offset = m * folded_x_bytes + at.mate * weight::bytes(w, kUnits);
  int row_block = own.row_block, step = own.step;
  sm80::wait_for_copies(ahead - 1);
  turns.arrive();
  for (int left = own.steps; left > 0; row_block++, step = 0) {
    float sums[kUnits][kEights][4] = {};
    const int steps = min(left, w.plan.shares.steps - step);
    uint32_t slot = from.at;
    for (int i = 0; i < steps; i++) {
      turns.wait();
      sm80::wait_for_copies(ahead - 2);
      turns.arrive();
      const uint32_t free = to.next();
      slot = from.next();
      int2_numbers<__half> codes[kUnits];
#pragma unroll
      for (int u = 0; u < kUnits; u++)
        codes[u].take(ptx::load_shared_uint4(slot + w_offset + u * SM80_PACKED_INT2_BYTES + at.lane * 16));
      for (bool large = true, again = false; large; again = true) {
        uint32_t scales[kUnits];
        large = load_scales(scales, slot + w_offset + INT2_UNIT_BYTES + at.lane / 4 * 4, again) && !again;
        multiply_folded<kEights, kUnits>(sums, slot + x_offset, codes, scales, [&](int part) {
          if (!again)
            next.fetch_part(free, part);
        });
      }
      next.advance();
      ptx::copy_async_commit();
    }
    write_own<kEights, kUnits>(w, sums, slot + w_offset, row_block, at.mate,
                               steps < w.plan.shares.steps ? part_of(w, static_cast<int>(blockIdx.x), left < own.steps)
                                                           : nullptr);
    left -= steps;
  }
}

} // namespace sm80_packed
