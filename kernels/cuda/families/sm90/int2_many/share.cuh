// How the work of int2_many/kernel.cuh is shared out, and what a block of it keeps in shared memory.
#pragma once

#include "../../../device/ptx.cuh"
#include "../../tiles.h"
#include "../int2/a8_layout.h"
#include "../int2/layout.h"
#include "config.h"

#include <cuda.h>
#include <cuda_fp16.h>

#include <type_traits>

namespace int2_many {

struct work {
  tiles_product product;
  int2_many_plan plan;
  int split_k, group;
  CUtensorMap x;
};

constexpr int ring_bytes = 208 * 1024; // for units under way: what y's order and barriers leave of shared memory

// Of pairs of x (int2_many/pairs.cuh): eight rows of K by eight columns, and all of a unit's K by eight columns.
constexpr int pair_core_bytes = 128 + 16, pair_column_bytes = 2 * GEMM_GROUP / 8 * pair_core_bytes;

// What depends on the type of x, on how wide a tile is, and on whether W's codes are multiplied as they lie. x of INT8
// is for INT2A8 weights, which have tiles of twice the K: in bytes, x of a unit of work is as wide either way.
template <typename X, int kEights, bool kPairs, int kGroups> struct shape {
  using number = X;
  static constexpr bool int8 = std::is_same_v<X, int8_t>, f16 = std::is_same_v<X, __half>, pairs = kPairs;
  static constexpr bool factors = false;
  static constexpr int eights = kEights, columns = 8 * kEights;
  static_assert(!pairs || (!int8 && columns <= 32));
  // Whether W is multiplied by its scales before the products, or by the half of them.
  static constexpr bool scales_w = pairs || INT2_MANY_SCALES_W(columns, f16);
  static constexpr int groups = kGroups; // blocks of 64 rows of W in a tile
  static_assert(groups >= 2 && groups <= 4);
  static constexpr int consumers = 128 * groups;
  // Warps that make pairs of x: pair_parts for each unit, of every pair_turns-th.
  static constexpr int pair_parts = 2, pair_turns = 3, pair_eights = (eights + pair_parts - 1) / pair_parts;
  static constexpr int helpers = pairs ? 32 * (2 + pair_parts * pair_turns) : 128, threads = consumers + helpers;
  // Of those that multiply, for a stage that they have taken: each lane's, or of each warp one lane's where that leaves
  // a register that is wanted elsewhere.
  static constexpr int arrivals = int8 ? consumers / 32 : consumers;
  // What a launch begins with a thread, and as it is shared out.
  static constexpr int registers = groups == 4   ? (pairs ? 80 : 96)
                                   : groups == 3 ? (pairs ? 96 : 128)
                                   : pairs       ? 128
                                                 : 160;
  static constexpr int producer_registers = pairs ? 48 : 32;
  static constexpr int consumer_registers = (threads * registers - helpers * producer_registers) / consumers;
  static_assert(consumers * consumer_registers + helpers * producer_registers == threads * registers &&
                consumer_registers % 8 == 0 && threads * registers <= 65536);
  static_assert(int{INT2A8_BLOCK_ROWS} == int{INT2_BLOCK_ROWS} && INT2A8_TILE_K == 2 * GEMM_GROUP);
  static constexpr uint32_t tile_bytes =
      int8 ? static_cast<uint32_t>(INT2A8_TILE_BYTES) : static_cast<uint32_t>(INT2_TILE_BYTES);
  static constexpr uint32_t half_bytes = columns * 128, x_bytes = 2 * half_bytes, w_bytes = groups * tile_bytes;
  static constexpr uint32_t pair_bytes = pairs ? kEights * pair_column_bytes : 0;
  static constexpr int stages = (ring_bytes - (pairs ? 2048 : 0)) / (x_bytes + w_bytes + pair_bytes);
  // With fewer, who makes pairs might wait for a parity of two phases ago.
  static_assert(!pairs || stages >= pair_turns);
};

// Rows of y that a warpgroup puts into order at a time, where they have 16 bits, and bytes from one to the next: eight
// of these lie in different banks.
constexpr int out_rows = 32, out_pitch = 2 * INT2_BLOCK_ROWS + 16;

// Pairs of x of units under way; of columns that are scaled, what makes up for it; where that makes a unit unusual, a
// byte for each of the warps that made its pairs; and that W and x have come and x has gone. Barriers and unusual[] are
// as far apart as barriers are.
template <typename Shape, bool kPairs> struct pair_ring {};
template <typename Shape> struct pair_ring<Shape, true> {
  alignas(128) uint8_t rows[Shape::stages][Shape::pair_bytes];
  float multiplier[Shape::stages][Shape::columns];
  uint64_t unusual[Shape::stages];
  uint64_t x_full[Shape::stages], x_empty[Shape::stages];
};

template <typename Shape> struct shared : Shape {
  using Shape::groups, Shape::stages, Shape::x_bytes, Shape::w_bytes;
  uint8_t x[stages][x_bytes]; // the swizzle counts from a multiple of 1024
  uint8_t w[stages][w_bytes];
  alignas(16) uint8_t out[groups][out_rows * out_pitch];
  uint64_t full[stages], empty[stages];
  pair_ring<Shape, Shape::pairs> pair;
};

// ---- stages

// Where in a tile of W the codes of a warpgroup's thread begin, and the scales of its two rows by that.
__device__ inline uint32_t codes_of(uint32_t tile, uint32_t thread) {
  static_assert(INT2_UNIT_BYTES == 32 * 16 && INT2_HALF_ROWS == 2 * INT2_UNIT_ROWS, "codes of a thread");
  return tile + thread / 64 * INT2_HALF_BYTES + thread % 64 * 16;
}
__device__ inline uint32_t scales_by(uint32_t codes, uint32_t thread) {
  return codes - thread % 64 * 16 + INT2_HALF_SCALES + thread % 64 / 4 * 4;
}

// Where the compiler may not touch what instructions under way read or add to.
template <typename T, int kCount> __device__ inline void keep(T (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; i++)
    ptx::keep(values[i]);
}

// ---- shares of the work

__device__ inline uint32_t quotient(uint32_t value, const int2_many_divisor &divisor) {
  return divisor.inverse ? __umulhi(value, divisor.inverse) >> divisor.shift : value;
}

// A block's units from the `done`-th on, as far as they follow each other: those of the tiles that blocks share, then a
// whole tile in each wave. None: unit == end.
struct run_of_units {
  uint32_t unit, end;

  __device__ run_of_units(const work &w, uint32_t block, uint32_t done) {
    const uint32_t tiles_k = w.plan.tiles_k;
    if (w.split_k > 0) {
      const uint32_t number = quotient(block, w.plan.by_split), part = block - number * w.split_k;
      unit = number * tiles_k + quotient(tiles_k * part, w.plan.by_split);
      end = number * tiles_k + quotient(tiles_k * (part + 1), w.plan.by_split);
    } else {
      const uint32_t more = w.plan.shared_more;
      unit = w.plan.shared_each * block + min(block, more), end = unit + w.plan.shared_each + (block < more);
    }
    unit += done;
    if (unit < end || w.plan.waves == 0)
      return;
    const uint32_t over = unit - end, wave = quotient(over, w.plan.by_tiles_k), within = over - wave * tiles_k;
    const uint32_t tile = w.plan.shared_units + (wave * w.plan.blocks + block) * tiles_k;
    unit = tile + within;
    end = wave < static_cast<uint32_t>(w.plan.waves) && tile < static_cast<uint32_t>(w.plan.units) ? tile + tiles_k
                                                                                                   : unit;
  }
};

// Of a block.
__device__ inline uint32_t units_of(const work &w, uint32_t block) {
  uint32_t units = 0;
  for (;;) {
    const run_of_units run(w, block, units);
    if (run.unit == run.end)
      return units;
    units += run.end - run.unit;
  }
}

// The units of a run that belong to one tile: [first, last) of its K.
struct segment {
  uint32_t tile, first, last;

  __device__ segment(const work &w, const run_of_units &run) {
    const uint32_t tiles_k = w.plan.tiles_k;
    tile = quotient(run.unit, w.plan.by_tiles_k), first = run.unit - tile * tiles_k;
    last = min(tiles_k, first + run.end - run.unit);
  }
  // The one that ends with the block's unit number `done` - 1.
  __device__ segment(const work &w, uint32_t block, uint32_t done) {
    const uint32_t unit = run_of_units(w, block, done - 1).unit;
    tile = quotient(unit, w.plan.by_tiles_k);
    const uint32_t at = unit - tile * w.plan.tiles_k;
    first = at - min(at, done - 1), last = at + 1;
  }
};

// Where a tile of y is: which rows of W, which rows of x.
struct place {
  uint32_t w, x;

  __device__ place(const work &work, uint32_t tile) {
    if (work.plan.x_tiles == 1) {
      w = tile, x = 0;
      return;
    }
    const uint32_t group = work.group, in_group = group * work.plan.w_tiles, first = tile / in_group * group;
    const uint32_t wide = min(group, work.plan.x_tiles - first), within = tile % in_group;
    w = within / wide, x = first + within % wide;
  }
};

// Where in the ring a warp is.
template <int kStages> struct cursor {
  uint32_t stage, phase;

  // Behind so many units.
  __device__ explicit cursor(uint32_t done) : stage(done % kStages), phase(done / kStages & 1) {}

  __device__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

} // namespace int2_many
