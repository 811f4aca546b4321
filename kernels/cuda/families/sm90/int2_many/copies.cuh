// Copies of int2_many/kernel.cuh: units of W and x from memory to a block's rings.
#pragma once

#include "share.cuh"

namespace int2_many {

constexpr int x_row_bytes = GEMM_GROUP * 2; // of a row of x in a unit

// What the copies of a unit need, along a block's work.
template <typename Shape> struct supply {
  run_of_units run;
  uint32_t done = 0;
  uint32_t k, last; // of the tile's K
  int column, row;  // of x: bytes, rows
  const uint8_t *w[Shape::groups];

  __device__ explicit supply(const work &w) : run(w, blockIdx.x, 0) {
    if (!ended())
      begin(w);
  }
  __device__ bool ended() const {
    return run.unit == run.end;
  }
  __device__ void begin(const work &work) {
    const segment s(work, run);
    const place p(work, s.tile);
    k = s.first, last = s.last;
    column = k * x_row_bytes;
#pragma unroll
    for (int group = 0; group < Shape::groups; group++) {
      // Rows behind the last are those of the last block once more.
      const int64_t block = min(p.w * Shape::groups + group, work.plan.row_blocks - 1u);
      w[group] = static_cast<const uint8_t *>(work.product.tiles) + (block * work.plan.tiles_k + k) * Shape::tile_bytes;
    }
    row = p.x;
  }
  __device__ void advance(const work &work) {
    run.unit++, done++;
    if (++k == last) {
      if (ended())
        run = run_of_units(work, blockIdx.x, done);
      if (!ended())
        begin(work);
      return;
    }
    column += x_row_bytes;
#pragma unroll
    for (int group = 0; group < Shape::groups; group++)
      w[group] += Shape::tile_bytes;
  }
};

// Two warps copy: one asks for W, before the kernel ahead has ended, one for x. A stage waits for an arrival of each,
// or in place of the latter of each lane that has made pairs of x.
constexpr int copying = 2;

template <typename Shape> __device__ inline void make_stage(shared<Shape> &s, int i) {
  ptx::barrier_init(ptx::shared_address(&s.full[i]), Shape::pairs ? 1 + 32 * Shape::pair_parts : copying);
  ptx::barrier_init(ptx::shared_address(&s.empty[i]), s.arrivals);
  if constexpr (Shape::pairs) {
    ptx::barrier_init(ptx::shared_address(&s.pair.x_full[i]), 1);
    ptx::barrier_init(ptx::shared_address(&s.pair.x_empty[i]), 32 * Shape::pair_parts);
  }
}

// By one thread, before anything is copied.
template <typename Shape> __device__ inline void make_barriers(shared<Shape> &s) {
  for (int i = 0; i < s.stages; i++)
    make_stage<Shape>(s, i);
}

template <typename Shape> __device__ inline void produce_w(const work &w, shared<Shape> &s) {
  const uint64_t policy = w.plan.x_tiles > 1 ? ptx::policy_evict_normal() : ptx::policy_evict_first();
  supply<Shape> from(w);
  cursor<Shape::stages> at(0);
#pragma unroll 1
  for (; !from.ended(); at.advance()) {
    const uint32_t full = ptx::shared_address(&s.full[at.stage]), to = ptx::shared_address(s.w[at.stage]);
    if (from.done >= s.stages)
      ptx::barrier_wait(ptx::shared_address(&s.empty[at.stage]), at.phase ^ 1);
    ptx::barrier_expect(full, s.w_bytes);
#pragma unroll
    for (int group = 0; group < s.groups; group++)
      ptx::copy_bulk(to + group * s.tile_bytes, from.w[group], s.tile_bytes, full, policy);
    from.advance(w);
  }
}

template <typename Shape> __device__ inline void produce_x(const work &w, shared<Shape> &s) {
  ptx::prefetch_tensor_map(&w.x);
  supply<Shape> from(w);
  cursor<Shape::stages> at(0);
  ptx::wait_for_previous_grid();
#pragma unroll 1
  for (; !from.ended(); at.advance()) {
    uint32_t full = ptx::shared_address(&s.full[at.stage]), empty = ptx::shared_address(&s.empty[at.stage]);
    if constexpr (Shape::pairs)
      full = ptx::shared_address(&s.pair.x_full[at.stage]), empty = ptx::shared_address(&s.pair.x_empty[at.stage]);
    const uint32_t to = ptx::shared_address(s.x[at.stage]);
    if (from.done >= s.stages)
      ptx::barrier_wait(empty, at.phase ^ 1);
    ptx::barrier_expect(full, s.x_bytes);
    ptx::copy_tensor(to, &w.x, from.column, from.row * s.columns, full);
    ptx::copy_tensor(to + s.half_bytes, &w.x, from.column + 128, from.row * s.columns, full);
    from.advance(w);
  }
}

} // namespace int2_many
