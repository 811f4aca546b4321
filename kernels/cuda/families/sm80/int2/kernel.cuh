// Kernel of sm80/int2/launch.h.
//
// Each team of warps has a ring of groups of K in shared memory: the groups' parts of rows of x, which its warps share,
// and W's codes and scales, which each warp copies for itself. Sums of a group stay in the instructions' registers, are
// multiplied by the rows' scales and added up. A block has several blocks of rows, of the first and the last one
// perhaps a part of K, and copies the first groups of the next while it multiplies the last ones of this.
#pragma once

#include "../../../device/half2.cuh"
#include "config.h"
#include "operand.cuh"
#include "write.cuh"

namespace sm80_int2 {

// Where codes and scales of 16 rows of W lie, a unit: bytes from those of the first of the warp's, which is a multiple
// of its units, and from one group to the next.
template <typename X> struct place {
  static __device__ int64_t unit(int unit, int groups) {
    return static_cast<int64_t>(unit / 4) * groups * INT2_TILE_BYTES + unit % 4 / 2 * INT2_HALF_BYTES +
           unit % 2 * INT2_UNIT_BYTES;
  }
  static __device__ constexpr int codes(int u) {
    return u / 2 * INT2_HALF_BYTES + u % 2 * INT2_UNIT_BYTES;
  }
  // `first` is the number of the warp's first unit.
  static __device__ int scales(int first, int u) {
    return codes(u) + INT2_HALF_SCALES - (first + u) % 2 * (INT2_UNIT_BYTES - INT2_UNIT_ROWS * 2);
  }
  static __device__ int64_t group(int group) {
    return static_cast<int64_t>(group) * INT2_TILE_BYTES;
  }
  static __device__ int scales_nearer(int) {
    return 0;
  }
};

template <> struct place<int8_t> {
  static __device__ int64_t unit(int unit, int groups) {
    return static_cast<int64_t>(unit / 4) * (groups / 2) * INT2A8_TILE_BYTES + unit % 4 * INT2A8_QUARTER_BYTES;
  }
  static __device__ constexpr int codes(int u) {
    return u * INT2A8_QUARTER_BYTES;
  }
  static __device__ int scales(int, int u) {
    return codes(u) + INT2A8_QUARTER_SCALES;
  }
  static __device__ int64_t group(int group) {
    return static_cast<int64_t>(group / 2) * INT2A8_TILE_BYTES + group % 2 * INT2A8_UNIT_BYTES;
  }
  // By how much less the scales of a group move than its codes.
  static __device__ int scales_nearer(int group) {
    return group % 2 * (INT2A8_UNIT_BYTES - INT2A8_UNIT_SCALES);
  }
};

using sm80::ring;
using sm80::seat;

// What a warp copies next.
template <typename X, int kUnits> struct source {
  static constexpr int turn = operands<X, 1>::groups, x_bytes = operands<X, 1>::x_bytes;
  static constexpr int row_units = turn * x_bytes / 16, w_bytes = kUnits * SM80_INT2_UNIT_BYTES;
  const work &w;
  const seat &at;
  const uint8_t *codes, *x; // of a lane
  int scales;               // from its codes
  uint32_t x_at, w_at;      // in a slot
  int x_group;              // of the turn's, that the lane copies of x
  int x_count;              // rows of it
  int x_from;               // from one of them to the next
  uint32_t x_to;            // the same in a slot
  int row_block, step, left, group;

  __device__ source(const work &w, const seat &at, const share &own)
      : w(w), at(at), row_block(own.row_block), step(own.step), left(own.steps) {
    const int thread = at.mate * 32 + at.lane;
    const int x_row = thread / row_units, x_rows = w.n_warps * 32 / row_units;
    x_group = thread % row_units * 16 / x_bytes;
    x_count = (static_cast<int>(w.product.m) - x_row + x_rows - 1) / x_rows;
    x_from = x_rows * static_cast<int>(w.product.x_stride);
    x_to = x_rows * w.plan.x_row_bytes;
    x_at = x_row * w.plan.x_row_bytes + thread % row_units * 16;
    x = static_cast<const uint8_t *>(w.product.x) + x_row * w.product.x_stride + thread % row_units * 16;
    w_at = static_cast<int>(w.product.m) * w.plan.x_row_bytes + at.mate * turn * w_bytes;
    group = (step * w.k_warps + at.team) * turn;
    find();
  }
  __device__ void fetch_w(uint32_t slot) const {
    if (!there())
      return;
#pragma unroll
    for (int g = 0; g < turn; g++) {
      if (g > 0 && group + g >= w.groups)
        return;
      const uint8_t *from = codes + place<X>::group(group + g);
      const uint32_t to = slot + w_at + g * w_bytes;
#pragma unroll
      for (int u = 0; u < kUnits; u++)
        ptx::copy_async_16(to + u * SM80_INT2_UNIT_BYTES + at.lane * 16, from + place<X>::codes(u), 16);
      if (at.lane < 2 * kUnits)
        ptx::copy_async_16(to + at.lane / 2 * SM80_INT2_UNIT_BYTES + INT2_UNIT_BYTES + at.lane % 2 * 16,
                           from + scales - place<X>::scales_nearer(group + g), 16);
    }
  }
  __device__ void fetch_x(uint32_t slot) const {
    if (!there() || group + x_group >= w.groups)
      return;
    const uint8_t *from = x + static_cast<int64_t>(group) * x_bytes;
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
  __device__ void advance() {
    group += w.k_warps * turn;
    left--;
    if (++step < w.plan.shares.steps)
      return;
    step = 0;
    group = at.team * turn;
    row_block++;
    find();
  }

private:
  __device__ bool there() const {
    return left > 0 && group < w.groups;
  }
  // Rows behind the last one are read from where it is: nobody reads their sums.
  __device__ void find() {
    const int unit = min((row_block * w.n_warps + at.mate) * kUnits, w.units - kUnits);
    codes = static_cast<const uint8_t *>(w.product.tiles) + place<X>::unit(unit, w.groups) + at.lane * 16;
    scales = place<X>::scales(unit, at.lane / 2 % kUnits) + at.lane % 2 * 16 - at.lane * 16;
  }
};

// The sums of a group, from its slot.
template <typename X, int kEights, int kUnits>
__device__ inline void multiply(float (&sums)[kUnits][kEights][4], const typename operands<X, kEights>::x &x,
                                uint32_t slot, uint32_t w_at, int lane) {
  using operands = operands<X, kEights>;
  typename operands::sum group[kUnits][kEights][4];
  typename operands::codes codes[kUnits];
  float2 scales[kUnits];
#pragma unroll
  for (int u = 0; u < kUnits; u++) {
    codes[u].take(ptx::load_shared_uint4(w_at + u * SM80_INT2_UNIT_BYTES + lane * 16));
    scales[u] = floats_of<__half>(ptx::load_shared(w_at + u * SM80_INT2_UNIT_BYTES + INT2_UNIT_BYTES + lane / 4 * 4));
#pragma unroll
    for (int i = 0; i < 4 * kEights; i++)
      group[u][i / 4][i % 4] = operands::start;
  }
  typename operands::x::loaded b[2][kEights];
#pragma unroll
  for (int step = 0; step < operands::steps; step++) {
    x.load(slot, step, b);
#pragma unroll
    for (int u = 0; u < kUnits; u++) {
      uint32_t a[4];
      codes[u].operand(step, a);
#pragma unroll
      for (int i = 0; i < kEights; i++)
        operands::multiply(group[u][i], a, b[step % 2][i]);
    }
  }
#pragma unroll
  for (int u = 0; u < kUnits; u++)
#pragma unroll
    for (int i = 0; i < 4 * kEights; i++)
      sums[u][i / 4][i % 4] =
          fmaf(operands::number(group[u][i / 4][i % 4]), i % 4 < 2 ? scales[u].x : scales[u].y, sums[u][i / 4][i % 4]);
}

constexpr int threads_most(int eights, int units) {
  return eights * units > 8 ? 256 : eights > 2 ? 384 : 512;
}

template <typename X, int kEights, int kUnits>
__global__ void __launch_bounds__(threads_most(kEights, kUnits), 1) run(const __grid_constant__ work w) {
  extern __shared__ __align__(16) uint8_t raw[];
  const seat at(w.n_warps);
  const uint32_t shared = ptx::shared_address(raw);
  const int m = static_cast<int>(w.product.m);
  float *const all_sums = reinterpret_cast<float *>(raw + w.k_warps * w.plan.stages * w.plan.slot_bytes);
  const typename operands<X, kEights>::x x(w.plan.x_row_bytes, m);
  const share own = share_of(w.plan.shares, static_cast<int>(blockIdx.x));
  source<X, kUnits> next(w, at, own);
  ring to(shared, at.team, w.plan.stages, w.plan.slot_bytes), from = to;
  const int ahead = w.plan.stages - 1;
#if __CUDA_ARCH__ >= 900
  if (w.dependent) {
    source<X, kUnits> early = next;
    ring place = to;
    for (int i = 0; i < ahead; i++, early.advance())
      early.fetch_w(place.next());
  }
  ptx::let_next_grid_start();
  ptx::wait_for_previous_grid();
#endif
  for (int i = 0; i < ahead; i++, next.advance()) {
    const uint32_t slot = to.next();
    if (!w.dependent)
      next.fetch_w(slot);
    next.fetch_x(slot);
    ptx::copy_async_commit();
  }
  constexpr int turn = operands<X, 1>::groups, x_bytes = operands<X, 1>::x_bytes;
  // Of two warps of a scheduler one copies behind its first group, while the other multiplies.
  const bool later = turn > 1 && threadIdx.x / 128 % 2 != 0;
  const int w_offset = m * w.plan.x_row_bytes + at.mate * turn * kUnits * SM80_INT2_UNIT_BYTES;
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
#pragma unroll(kEights > 2 ? 1 : turn)
      for (int g = 0; g < turn; g++) {
        if (group + g < w.groups)
          multiply<X, kEights, kUnits>(sums, x, slot + g * x_bytes, slot + w_offset + g * kUnits * SM80_INT2_UNIT_BYTES,
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

} // namespace sm80_int2
