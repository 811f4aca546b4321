// What blocks of grouped_int4/kernel.cuh share out among them, and where things are.
#pragma once

#include "../../../device/number.cuh"
#include "../../../device/ptx.cuh"
#include "../int4/layout.h"
#include "config.h"
#include "product.h"

namespace grouped_int4 {

constexpr int copiers = 2, makers = 2;    // warps beside: one lane each copies W; x of tiles is made by all
constexpr int pitch = INT4_HALF_ROWS + 4; // f32: of a row of sums
constexpr int piece_barrier = 1, makers_barrier = 2;

// kWarps: that multiply; kEights: of columns, at most.
template <typename Form, int kWarps, int kEights> struct shape {
  using form = Form;
  static constexpr int warps = kWarps, eights = kEights, consumers = 32 * warps;
  static constexpr int threads = consumers + 32 * (copiers + makers);
  static constexpr uint32_t half_bytes = form::half_bytes, stage_bytes = warps * half_bytes;
};

struct work {
  grouped_int4_product product;
  grouped_int4_plan plan;
  int row_blocks; // of 32 rows of an expert's W
};

// A piece: so many half blocks of rows of a tile's W. Each has as many of the warps, which share its K; without whole
// rows of warps some are left over.
struct piece {
  int first, blocks, parts; // the first half block; warps that each has
};

// What is best taken of so many half blocks that are left: a power of two of them, with room for as many, or all of
// them with room for more, whose warps are left over. In rounds, which a warp takes half a tile each: what ends a piece
// where warps share K takes three.
__device__ inline int room_for(int left, int tiles, int warps) {
  constexpr int ending = 3;
  int room = warps;
  while (room > left)
    room /= 2;
  if (room == warps || room == left)
    return room;
  const auto rounds = [&](int blocks) { return (tiles * blocks + warps - 1) / warps + (blocks < warps ? ending : 0); };
  int apart = 0;
  for (int rest = left, take = room; rest > 0; rest -= take) {
    while (take > rest)
      take /= 2;
    apart += rounds(take);
  }
  return rounds(2 * room) < apart ? 2 * room : room;
}

// A block's share of all tiles' half blocks, in their order, as even as it can be, cut into pieces: large ones, for
// each begins and ends by itself, and smaller ones where the share or the tile ends.
struct run {
  int tile, block, left; // tile: of the route; block: half a one, of the tile
  int row_blocks, tiles, warps;

  __device__ explicit run(const work &w) : row_blocks(w.row_blocks), tiles(w.plan.tiles), warps(w.plan.warps) {
    const int all_tiles = *const_cast<volatile int *>(&w.product.route.counts->tiles);
    const int64_t all = static_cast<int64_t>(all_tiles) * row_blocks, blocks = gridDim.x;
    const int64_t begin = all * blockIdx.x / blocks, end = all * (blockIdx.x + 1) / blocks;
    tile = static_cast<int>(begin / row_blocks);
    block = static_cast<int>(begin % row_blocks);
    left = static_cast<int>(end - begin);
  }
  __device__ piece now() const {
    const int here = min(left, row_blocks - block);
    if (here <= 0)
      return {block, 0, warps};
    const int room = room_for(here, tiles, warps);
    return {block, min(room, here), warps / room};
  }
  // Goes on by so many; true where the next is of another tile.
  __device__ bool skip(int blocks) {
    left -= blocks;
    block += blocks;
    if (block < row_blocks)
      return false;
    block = 0;
    tile++;
    return true;
  }
};

// Where the x of a block's tiles are, number by number: two tiles of few rows each beside each other, so that one is
// made while the other is multiplied; a tile of more rows by itself.
struct x_place {
  int number, row; // row: where it begins
  bool large;

  __device__ x_place(const work &w, int number, int rows) : number(number) {
    const int half = w.plan.rows / 2;
    large = rows > half;
    row = large ? 0 : number % 2 * half;
  }
  __device__ int turn() const {
    return number % 2;
  }
  __device__ uint32_t phase() const {
    return number / 2 % 2;
  }
};

// Addresses in shared memory.
struct places {
  uint32_t x, sums, ring, barriers, multipliers;

  __device__ places(const work &w, uint32_t begin, uint32_t stage_bytes)
      : x(begin), sums(x + w.plan.x_bytes), ring(sums + w.plan.sums_bytes),
        barriers(ring + w.plan.stages * stage_bytes), multipliers(barriers + 16 * (GROUPED_INT4_STAGES_MOST + 2)) {}
  __device__ uint32_t full(int stage) const {
    return barriers + 16 * stage;
  }
  __device__ uint32_t empty(int stage) const {
    return barriers + 16 * stage + 8;
  }
  __device__ uint32_t x_full(int turn) const {
    return barriers + 16 * (GROUPED_INT4_STAGES_MOST + turn);
  }
  __device__ uint32_t x_empty(int turn) const {
    return x_full(turn) + 8;
  }
};

struct cursor {
  int stages, stage = 0;
  uint32_t phase = 0;

  __device__ explicit cursor(int all) : stages(all) {}
  __device__ void advance() {
    if (++stage == stages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

} // namespace grouped_int4
