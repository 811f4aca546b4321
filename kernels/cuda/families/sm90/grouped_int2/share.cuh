// What blocks of grouped_int2/kernel.cuh share out among them, and where things
// are.
#pragma once

#include "../../../device/number.cuh"
#include "../../../device/ptx.cuh"
#include "../int2/layout.h"
#include "config.h"
#include "product.h"

namespace grouped_int2 {

constexpr int warps = GROUPED_INT2_WARPS, consumers = 32 * warps, threads = consumers + 64;
constexpr int pitch = INT2_BLOCK_ROWS + 4; // f32: of a row of sums
constexpr uint32_t stage_bytes = warps * INT2_TILE_BYTES;
constexpr int piece_barrier = 1;

struct work {
  grouped_int2_product product;
  grouped_int2_plan plan;
  int row_blocks,
      pieces; // of 64 rows of an expert's W, and pieces that these are
};

// Bytes of x that the pass makes of a row; behind all of them come their
// multipliers.
__host__ __device__ inline int64_t made_row(int groups, bool splits) {
  return static_cast<int64_t>(groups) * GROUPED_INT2_X_BYTES * (splits ? 2 : 1);
}

// Parts of `made`.
struct made {
  uint8_t *x;
  float *multipliers; // [rows][plan.multipliers]

  __device__ explicit made(const work &w) {
    const grouped_int2_product &p = w.product;
    const int64_t rows = p.last_row - p.first_row + GROUPED_INT2_COLUMNS;
    x = static_cast<uint8_t *>(p.made);
    multipliers = reinterpret_cast<float *>(x + rows * made_row(w.plan.groups, p.splits));
  }
};

// A block's pieces, one behind the other, of the tiles that go now.
struct run {
  int first_tile, tile, piece, left; // tile: of the route; piece: of the tile
  int pieces;

  // The first tile that begins at row `row` or behind it.
  static __device__ int lower(const experts_route &route, int tiles, int64_t row) {
    int low = 0;
    while (low < tiles) {
      const int middle = (low + tiles) / 2;
      if (route.tiles[middle].first < row)
        low = middle + 1;
      else
        tiles = middle;
    }
    return low;
  }
  __device__ explicit run(const work &w) : pieces(w.pieces) {
    const experts_route &route = w.product.route;
    const int tiles = *const_cast<volatile int *>(&route.counts->tiles);
    first_tile = w.product.first_row == 0 ? 0 : lower(route, tiles, w.product.first_row);
    const int last = w.product.last_row >= w.product.pairs ? tiles : lower(route, tiles, w.product.last_row);
    const int64_t all = static_cast<int64_t>(last - first_tile) * pieces, blocks = gridDim.x;
    const int64_t begin = all * blockIdx.x / blocks, end = all * (blockIdx.x + 1) / blocks;
    tile = first_tile + static_cast<int>(begin / pieces);
    piece = static_cast<int>(begin % pieces);
    left = static_cast<int>(end - begin);
  }
  // True where the next piece is of another tile.
  __device__ bool next() {
    left--;
    if (++piece < pieces)
      return false;
    piece = 0;
    tile++;
    return true;
  }
};

// Addresses in shared memory.
struct places {
  uint32_t x, multipliers, sums, ring, barriers;

  __device__ places(const work &w, uint32_t begin)
      : x(begin), multipliers(x + w.plan.x_bytes), sums(multipliers + w.plan.multiplier_bytes),
        ring(sums + w.plan.sums_bytes), barriers(ring + w.plan.stages * stage_bytes) {}
  __device__ uint32_t full(int stage) const {
    return barriers + 16 * stage;
  }
  __device__ uint32_t empty(int stage) const {
    return barriers + 16 * stage + 8;
  }
  __device__ uint32_t x_full() const {
    return barriers + 16 * GROUPED_INT2_STAGES_MOST;
  }
  __device__ uint32_t x_empty() const {
    return x_full() + 8;
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

// Blocks of 64 rows of W that a piece has.
__device__ inline int blocks_of(const work &w, int piece) {
  return min(w.plan.blocks, w.row_blocks - piece * w.plan.blocks);
}

} // namespace grouped_int2
