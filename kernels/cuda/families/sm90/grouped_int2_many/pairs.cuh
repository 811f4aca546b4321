// Pairs of x of int2_many/pairs.cuh, for tiles of which the device alone knows how many columns they have.
#pragma once

#include "../int2_many/pairs.cuh"
#include "share.cuh"

namespace grouped_int2_many {

using int2_many::column_bytes, int2_many::make_pairs, int2_many::make_scaled_pairs, int2_many::pair_place;

// A warp that makes pairs of a part of a tile's columns: the first half of them, or what is left.
template <typename Shape> struct pair_maker {
  int column, eights; // of columns: where its begin, how many there are
  pair_place first;
  uint32_t barriers;

  // Of as many of a tile.
  static __device__ int eights_of(int all) {
    return (all + Shape::pair_parts - 1) / Shape::pair_parts;
  }
  // all: eights of the tile
  __device__ pair_maker(const int2_many::shared<Shape> &s, int part, int all)
      : column(part * eights_of(all)), eights(min(eights_of(all), all - column)),
        first(x_of(s, 0, column), rows_of(s, 0, column), ptx::thread() % 32),
        barriers(ptx::held(ptx::shared_address(s.full))) {
    first.even = ptx::held(first.even), first.odd = ptx::held(first.odd);
    first.numbers = ptx::held(first.numbers), first.sums = ptx::held(first.sums);
  }

  // In the stage that is next, whose pairs have been used by whoever multiplies if `used`.
  __device__ void make(int2_many::shared<Shape> &s, const cursor<Shape::stages> &at, bool used) const {
    const auto barrier = [&](const uint64_t *of) {
      return barriers + at.stage * 8 +
             static_cast<uint32_t>(reinterpret_cast<const char *>(of) - reinterpret_cast<const char *>(s.full));
    };
    // This first: copies come in any order, so that of x the phase before might not be complete yet, which the parity
    // of this one would not tell.
    if (used)
      ptx::barrier_wait(barrier(s.empty), at.phase ^ 1);
    ptx::barrier_wait(barrier(s.pair.x_full), at.phase);
    const bool scaled = make_pairs<Shape>({first, at.stage * Shape::x_bytes, at.stage * Shape::pair_bytes}, eights);
    uint32_t begin = column;
    ptx::keep(begin); // so that nothing that follows from it has a register all the time
    if (scaled)
      make_scaled_pairs<Shape>(x_of(s, at.stage, begin), rows_of(s, at.stage, begin), eights,
                               ptx::shared_address(s.pair.multiplier[at.stage]) + begin * 32);
    ptx::store_shared_byte(ptx::shared_address(s.pair.unusual) + at.stage * 8 + min(begin, 1u), scaled);
    ptx::fence_async_shared();
    ptx::barrier_arrive(barrier(s.full));
    ptx::barrier_arrive(barrier(s.pair.x_empty));
  }

private:
  // Where x and pairs of a stage are, from an eight on.
  static __device__ uint32_t x_of(const int2_many::shared<Shape> &s, uint32_t stage, uint32_t column) {
    return ptx::shared_address(s.x[0]) + stage * Shape::x_bytes + column * 1024;
  }
  static __device__ uint32_t rows_of(const int2_many::shared<Shape> &s, uint32_t stage, uint32_t column) {
    return ptx::shared_address(s.pair.rows[0]) + stage * Shape::pair_bytes + column * column_bytes;
  }
};

// All the pairs that one warp makes. warp: of those that do.
template <typename Shape> __device__ inline void produce_pairs(const work &w, shared<Shape> &s, int warp) {
  constexpr int pair_parts = Shape::pair_parts;
  cursor<Shape::stages> at(warp / pair_parts);
  int unit = warp / pair_parts; // of the piece
#pragma unroll 1
  for (turn name;; name.number++) {
    const piece p = next_piece(s, name);
    if (p.expert < 0)
      return;
    const pair_maker<Shape> maker(s, warp % pair_parts, p.eights());
#pragma unroll 1
    for (; unit < w.tiles_k; unit += Shape::pair_turns) {
      maker.make(s, at, true);
#pragma unroll
      for (int i = 0; i < Shape::pair_turns; i++)
        at.advance();
    }
    unit -= w.tiles_k;
    __syncwarp();
    if (ptx::thread() % 32 == 0)
      give_back(s, name);
  }
}

} // namespace grouped_int2_many
