// What blocks of grouped_int2/kernel.cuh share out among them, and where things
// are.
#pragma once

#include "../../../device/cursor.cuh"
#include "../../../device/number.cuh"
#include "../../../device/ptx.cuh"
#include "../../../experts/x_place.cuh"
#include "../../tiles.h"
#include "../int2/layout.h"
#include "config.h"

namespace grouped_int2 {

constexpr int warps = GROUPED_INT2_WARPS, consumers = 32 * warps;
constexpr int copiers = 2, makers = 4; // warps beside: one lane each copies W; x of tiles is made by all
constexpr int threads = consumers + 32 * (copiers + makers);
constexpr int pitch = INT2_BLOCK_ROWS + 4; // f32: of a row of sums
constexpr uint32_t stage_bytes = warps * INT2_TILE_BYTES;
constexpr int piece_barrier = 1;

struct work {
  tiles_product product;
  grouped_int2_plan plan;
  int row_blocks; // of 64 rows of an expert's W
};

// Blocks of rows of W, one after another, of one tile of x: their tiles of W lie one behind the other, and each warp
// has as many of these as the others, or one more.
struct piece {
  int first, blocks, groups; // the first block; groups of K

  // The first tile of W of a warp, counted from the piece's first; of all of them together: the end.
  __device__ int begin(int warp) const {
    return blocks * groups * warp / warps;
  }
  // The block of rows that this is in: begin(warp) / groups.
  __device__ int block(int warp) const {
    return blocks * warp / warps;
  }
  __device__ bool begins_block(int warp) const {
    return begin(warp) == block(warp) * groups;
  }
  // Tiles of W that each warp has, and that the warp with the most of them has.
  __device__ int rounds_of_all() const {
    return blocks * groups / warps;
  }
  __device__ int rounds() const {
    return (blocks * groups + warps - 1) / warps;
  }
};

// A block's share of all tiles' blocks of rows, in their order, as even as it can be: of each tile of x one piece,
// whose blocks of rows end at different times, or where the ring is too short for that a piece of so many that warps
// have whole ones, which end together, and one of the rest. By whole warps.
struct run {
  int tile, block, left; // tile: of the route; block: of rows, of the tile
  int row_blocks, groups;
  bool together;
  experts_tile early; // of lane i: the route's tile i, asked for before anybody knows how many there are

  __device__ explicit run(const work &w)
      : row_blocks(w.row_blocks), groups(w.plan.groups), together(w.plan.stages < GROUPED_INT2_STAGES_MOST) {
    const experts_route &route = w.product.route;
    const int lane = threadIdx.x % 32;
    const int tiles = *const_cast<volatile int *>(&route.counts->tiles);
    early = route.tiles[min(lane, static_cast<int>(w.product.m) - 1)];
    // In 32 bits: divisions of 64 would be waited for. There are less than 2^16 tiles, and 2^15 blocks of rows.
    const unsigned all = static_cast<unsigned>(tiles) * row_blocks, each = all / gridDim.x, more = all % gridDim.x;
    const auto begin = [&](unsigned b) { return each * b + more * b / gridDim.x; };
    const unsigned first = begin(blockIdx.x);
    left = static_cast<int>(begin(blockIdx.x + 1) - first);
    tile = static_cast<int>(first / row_blocks);
    block = static_cast<int>(first % row_blocks);
  }
  __device__ piece now() const {
    const int here = min(left, row_blocks - block);
    return {block, together && here > warps ? here / warps * warps : here, groups};
  }
  // The route's, of the piece, as far as it is of use here.
  __device__ experts_tile tile_of_x(const work &w) const {
    if (tile >= 32)
      return w.product.route.tiles[tile];
    return {__shfl_sync(0xffffffffu, early.expert, tile), __shfl_sync(0xffffffffu, early.first, tile),
            __shfl_sync(0xffffffffu, early.rows, tile), 0, 0};
  }
  // Goes on by so many blocks of rows; true where the next is of another tile.
  __device__ bool advance(int blocks) {
    left -= blocks;
    block += blocks;
    if (left > 0 && block < row_blocks)
      return false;
    block = 0;
    tile++;
    return true;
  }
};

using experts::x_place;

// Addresses in shared memory.
struct places : experts::barriers_at<GROUPED_INT2_STAGES_MOST> {
  uint32_t x, multipliers, sums, ring;

  __device__ places(const work &w, uint32_t begin)
      : barriers_at(begin + w.plan.x_bytes + w.plan.multiplier_bytes + w.plan.sums_bytes + w.plan.stages * stage_bytes),
        x(begin), multipliers(x + w.plan.x_bytes), sums(multipliers + w.plan.multiplier_bytes),
        ring(sums + w.plan.sums_bytes) {}
};

} // namespace grouped_int2
