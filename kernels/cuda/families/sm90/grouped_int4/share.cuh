// What blocks of grouped_int4/kernel.cuh share out among them, and where things are.
#pragma once

#include "../../../device/cursor.cuh"
#include "../../../device/number.cuh"
#include "../../../device/ptx.cuh"
#include "../../../experts/x_place.cuh"
#include "../../tiles.h"
#include "../int4/layout.h"
#include "config.h"

#include <type_traits>

namespace grouped_int4 {

constexpr int makers =
    2; // warps beside those that multiply: x of tiles is made by all of their lanes; one more adds up
constexpr int pitch = GROUPED_INT4_SUMS_PITCH;
constexpr int makers_barrier = 1;

// X: what x is in shared memory; kWarps: that multiply, half a tile of a stage each; kEights: of columns, at most.
template <typename Form, typename X, int kWarps, int kEights> struct shape {
  using form = Form;
  using x_type = X;
  static constexpr int warps = kWarps, eights = kEights, together = warps / 2;
  static constexpr int threads = 32 * (warps + 1 + makers + 1);
  static constexpr uint32_t stage_bytes = together * form::tile_bytes;
};

template <typename X> constexpr gemm_type type_of = std::is_same_v<X, __half> ? GEMM_F16 : GEMM_BF16;

struct work {
  tiles_product product;
  grouped_int4_plan plan;
  int halves; // of blocks: of 32 rows of an expert's W
};

__device__ inline uint4 early_tile(const work &w, int lane) {
  return ptx::load_relaxed(reinterpret_cast<const uint4 *>(w.product.route.tiles) + lane);
}

// A block's share of all tiles' blocks of rows, in their order: of halves, where there are few and the largest share is
// less by that, else of whole ones. By pieces: whole blocks of rows of a tile, which lie behind each other, or half a
// one.
struct run {
  static constexpr int few = 16; // halves that a block has

  int tile, half, left; // tile: of the route; half: the first, of the tile
  int halves;

  __device__ explicit run(const work &w) : halves(w.halves) {
    const int all_tiles = *const_cast<volatile int *>(&w.product.route.counts->tiles);
    const int64_t all = static_cast<int64_t>(all_tiles) * halves, blocks = gridDim.x;
    const bool by_halves = all < few * blocks && static_cast<unsigned>(all + blocks - 1) / gridDim.x % 2 == 1;
    const int unit = by_halves ? 1 : 2;
    const int64_t begin = all / unit * blockIdx.x / blocks * unit, end = all / unit * (blockIdx.x + 1) / blocks * unit;
    tile = static_cast<int>(begin / halves);
    half = static_cast<int>(begin % halves);
    left = static_cast<int>(end - begin);
  }
  // The tile that it begins with. early: of each lane, that of its number, which was asked for before the run was
  // known.
  __device__ experts_tile first(const work &w, uint4 early) const {
    const int lane = tile % 32;
    const auto from = [&](uint32_t word) { return __shfl_sync(0xffffffffu, word, lane); };
    const uint4 words = {from(early.x), from(early.y), from(early.z), from(early.w)};
    const experts_tile &out = reinterpret_cast<const experts_tile &>(words);
    return tile < 32 || left == 0 ? out : w.product.route.tiles[tile];
  }
  // Halves of the piece.
  __device__ int here() const {
    const int most = min(left, halves - half);
    return half % 2 == 1 || most == 1 ? 1 : most & ~1;
  }
  // True where the next piece is of another tile.
  __device__ bool next() {
    const int taken = here();
    left -= taken;
    half += taken;
    if (half < halves)
      return false;
    half = 0;
    tile++;
    return true;
  }
  __device__ void next_tile() {
    left -= min(left, halves - half);
    half = 0;
    tile++;
  }
};

using experts::x_place;

// Addresses in shared memory.
struct places : experts::barriers_at<GROUPED_INT4_STAGES_MOST> {
  uint32_t x, sums, ring, multipliers;

  __device__ places(const work &w, uint32_t begin, uint32_t stage_bytes)
      : barriers_at(begin + w.plan.x_bytes + w.plan.sums_bytes + w.plan.stages * stage_bytes), x(begin),
        sums(x + w.plan.x_bytes), ring(sums + w.plan.sums_bytes), multipliers(barriers + 16 * (pairs + 2)) {}
  // Of every other block of rows.
  __device__ uint32_t summed(int turn) const {
    return full(pairs + turn);
  }
  __device__ uint32_t added(int turn) const {
    return summed(turn) + 8;
  }
};

} // namespace grouped_int4
