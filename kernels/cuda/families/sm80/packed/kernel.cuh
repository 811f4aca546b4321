// Kernel of sm80/packed/launch.h, of the weights of int2.cuh and int4.cuh.
//
// Each team of warps has a ring of groups of K in shared memory: the groups' parts of rows of x, which its warps share,
// and W's codes and scales, which each warp copies for itself. Sums of a group stay in the instructions' registers, are
// multiplied by the rows' scales and added up. A block has several blocks of rows, of the first and the last one
// perhaps a part of K, and copies the first groups of the next while it multiplies the last ones of this.
#pragma once

#include "../team.cuh"
#include "config.h"
#include "write.cuh"

namespace sm80_packed {

using sm80::ring;
using sm80::seat;

// What a warp copies next, of weights of type W, which says with
//   groups, x_bytes      how much of K a turn is; bytes of x of a group
//   bytes(work, units)   what a group takes of so many units of 16 rows
//   copies<kUnits>       where a team's next turn lies for a lane: find() of a unit and a group, skip() groups, and
//                        fetch() a turn, or the first group of one
//   x<kEights>           how eights of rows of x are read from shared memory
//   multiply             the sums of a group, from its slot
template <typename W, int kUnits> struct source {
  static constexpr int turn = W::groups, row_units = turn * W::x_bytes / 16;
  const work &w;
  const seat &at;
  typename W::template copies<kUnits> codes;
  const uint8_t *x;    // of a lane, of the next turn
  uint32_t x_at, w_at; // in a slot
  int x_group;         // of the turn's, that the lane copies of x
  int x_count;         // rows of it
  int x_from;          // from one of them to the next
  uint32_t x_to;       // the same in a slot
  int row_block, step, left, group;

  __device__ source(const work &w, const seat &at, const share &own)
      : w(w), at(at), row_block(own.row_block), step(own.step), left(own.steps) {
    const int thread = at.mate * 32 + at.lane;
    const int x_row = thread / row_units, x_rows = w.n_warps * 32 / row_units;
    x_group = thread % row_units * 16 / W::x_bytes;
    x_count = (static_cast<int>(w.product.m) - x_row + x_rows - 1) / x_rows;
    x_from = x_rows * static_cast<int>(w.product.x_stride);
    x_to = x_rows * w.plan.x_row_bytes;
    x_at = x_row * w.plan.x_row_bytes + thread % row_units * 16;
    w_at = static_cast<int>(w.product.m) * w.plan.x_row_bytes + at.mate * turn * W::bytes(w, kUnits) + at.lane * 16;
    group = (step * w.k_warps + at.team) * turn;
    find();
  }
  __device__ void fetch_w(uint32_t slot) const {
    if (group < w.groups)
      codes.fetch(w, slot + w_at, at.lane, turn == 1 || group + 1 < w.groups);
  }
  __device__ void fetch_x(uint32_t slot) const {
    if (group + x_group >= w.groups)
      return;
    const uint8_t *from = x;
    uint32_t to = slot + x_at;
#pragma unroll 2
    for (int i = 0; i < x_count; i++) {
      ptx::copy_async_16(to, from, 16);
      from += x_from;
      to += x_to;
    }
  }
  // All of a turn, and on to the next.
  __device__ void fetch(uint32_t slot) {
    fetch_w(slot);
    fetch_x(slot);
    advance();
    ptx::copy_async_commit();
  }
  // One of at least kUnits + 1 parts of all of a turn, of one group: what a lane copies at a time.
  __device__ void fetch_part(uint32_t slot, int part) const {
    if (group >= w.groups)
      return;
    codes.fetch_part(slot + w_at, at.lane, part);
    if (part < x_count)
      ptx::copy_async_16(slot + x_at + part * x_to, x + part * x_from, 16);
  }
  // Behind the last one there is no group.
  __device__ void advance() {
    const int groups = w.k_warps * turn;
    group += groups;
    codes.skip(w, groups);
    x += groups * W::x_bytes;
    step++;
    if (--left <= 0)
      group = 1 << 30;
    else if (step == w.plan.shares.steps) {
      step = 0;
      group = at.team * turn;
      row_block++;
      find();
    }
  }

private:
  // Rows behind the last one are read from where it is: nobody reads their sums.
  __device__ void find() {
    const int thread = at.mate * 32 + at.lane;
    codes.find(w, min((row_block * w.n_warps + at.mate) * kUnits, w.units - kUnits), group, at.lane);
    x = static_cast<const uint8_t *>(w.product.x) + thread / row_units * w.product.x_stride + thread % row_units * 16 +
        static_cast<int64_t>(group) * W::x_bytes;
  }
};

constexpr int threads_most(int eights, int units) {
  return eights * units > 8 ? 256 : eights * units > 4 ? 384 : 512;
}

template <typename W, int kEights, int kUnits>
__global__ void __launch_bounds__(threads_most(kEights, kUnits), 1) run(const __grid_constant__ work w) {
  extern __shared__ __align__(16) uint8_t raw[];
  const seat at(w.n_warps);
  const uint32_t shared = ptx::shared_address(raw);
  const int m = static_cast<int>(w.product.m);
  float *const all_sums = reinterpret_cast<float *>(raw + w.k_warps * w.plan.stages * w.plan.slot_bytes);
  const typename W::template x<kEights> x(w.plan.x_row_bytes, m);
  const share own = share_of(w.plan.shares, static_cast<int>(blockIdx.x));
  source<W, kUnits> next(w, at, own);
  ring to(shared, at.team, w.plan.stages, w.plan.slot_bytes), from = to;
  const int ahead = w.plan.stages - 1;
  sm80::fill(next, to, ahead, w.dependent);
  // Of two warps of a scheduler one copies behind its first group, while the other multiplies.
  constexpr int turn = W::groups;
  const bool later = turn > 1 && threadIdx.x / 128 % 2 != 0;
  const int w_bytes = W::bytes(w, kUnits), w_offset = m * w.plan.x_row_bytes + at.mate * turn * w_bytes;
  int row_block = own.row_block, step = own.step;
  for (int left = own.steps; left > 0; row_block++, step = 0) {
    float sums[kUnits][kEights][4] = {};
    const int steps = min(left, w.plan.shares.steps - step);
    int group = (step * w.k_warps + at.team) * turn;
    for (int i = 0; i < steps; i++, group += w.k_warps * turn) {
      sm80::wait_for_copies(ahead - 1);
      sm80::team_sync(w.n_warps, at);
      const uint32_t free = to.next(), slot = from.next();
      if (!later)
        next.fetch(free);
#pragma unroll(kEights > 2 ? 1 : W::unrolled)
      for (int g = 0; g < turn; g++) {
        if (group + g < w.groups)
          W::template multiply<kEights, kUnits>(sums, w, x, slot + g * W::x_bytes, slot + w_offset + g * w_bytes,
                                                at.lane);
        if (g == 0 && later)
          next.fetch(free);
      }
    }
    keep_sums<kEights, kUnits>(w, sums, all_sums, at.team, at.mate);
    __syncthreads();
    write_sums(w, all_sums, row_block,
               steps < w.plan.shares.steps ? part_of(w, static_cast<int>(blockIdx.x), left < own.steps) : nullptr);
    __syncthreads();
    left -= steps;
  }
}

} // namespace sm80_packed
