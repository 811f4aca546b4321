// How the work of fp8_many/kernel.cuh is shared out, and what a block of it keeps in shared memory.
#pragma once

#include "../../../device/ptx.cuh"
#include "../hopper/product.h"
#include "config.h"

#include <cuda.h>

namespace fp8_many {

// A launch: the product, how it is cut up, and W and x for the copy engine. `dependent`: the kernel ahead may still
// run.
struct work {
  hopper_product product;
  fp8_many_plan plan;
  bool dependent;
  CUtensorMap w, x;
};

constexpr int groups = 2, consumers = 128 * groups, threads = consumers + 128;
constexpr int columns = FP8_MANY_COLUMNS, eights = columns / 8;
constexpr int consumer_registers = 232, producer_registers = 40;
static_assert(consumers * consumer_registers + 128 * producer_registers <= 65536, "a multiprocessor's");

// Rows of y that a warpgroup puts into order at a time, by the bytes of an element, and bytes from one to the next:
// eight of these lie in different banks.
template <int kSize> constexpr int out_rows = kSize == 2 ? 64 : 32;
template <int kSize> constexpr int out_pitch = 64 * kSize + 16;

template <int kRows> struct shared {
  static constexpr uint32_t w_bytes = kRows * FP8_MANY_STEP, x_bytes = columns * FP8_MANY_STEP;
  static constexpr int slots = 192 * 1024 / (w_bytes + x_bytes);
  uint8_t ring[slots][w_bytes + x_bytes]; // the swizzle counts from a multiple of 1024
  static_assert(out_rows<4> * out_pitch<4> <= out_rows<2> * out_pitch<2>, "f32 has room, too");
  alignas(16) uint8_t out[groups][out_rows<2> * out_pitch<2>];
  float x_scale[groups][columns];
  uint64_t full[slots], empty[slots], joined;
};

__device__ inline uint32_t quotient(uint32_t value, const fp8_many_divisor &divisor) {
  return divisor.inverse ? __umulhi(value, divisor.inverse) : value;
}

// Steps [first, last) of a tile's K.
struct segment {
  uint32_t tile, first, last;
};

// What a block computes: its part of its cluster's tile, or every so many-th of all tiles.
struct segments {
  uint32_t tile;

  __device__ explicit segments(const fp8_many_plan &plan) : tile(plan.split_k > 1 ? blockIdx.y : blockIdx.x) {}

  // False where there is none any more.
  __device__ bool next(const fp8_many_plan &plan, segment &out) {
    const uint32_t steps = plan.steps, tiles = plan.w_tiles * plan.x_tiles;
    if (tile >= tiles)
      return false;
    const uint32_t first = plan.split_k > 1 ? min(steps, plan.steps_of_block * blockIdx.x) : 0;
    out = {tile, first, min(steps, first + plan.steps_of_block)};
    tile = plan.split_k > 1 ? tiles : tile + gridDim.x;
    return true;
  }
};

// Where a tile of y is: which rows of W, which rows of x, in tiles.
struct place {
  uint32_t w, x;

  __device__ place(const fp8_many_plan &plan, uint32_t tile) {
    const uint32_t number = quotient(tile, plan.by_group), within = tile - number * plan.by_group.by;
    const bool last = (number + 1) * plan.group >= static_cast<uint32_t>(plan.x_tiles);
    const fp8_many_divisor wide = last ? plan.by_last : plan.by_wide;
    w = quotient(within, wide);
    x = number * plan.group + within - w * wide.by;
  }
};

// Slots of the ring that copies use; in those behind them blocks of a cluster get sums from each other.
template <int kRows> __device__ inline uint32_t stages_of(const fp8_many_plan &plan) {
  return shared<kRows>::slots - (plan.split_k > 2 ? 2 : plan.split_k > 1 ? 1 : 0);
}

// Where in the ring a warp is.
struct cursor {
  uint32_t stages, stage = 0, phase = 0;

  __device__ explicit cursor(uint32_t all) : stages(all) {}

  __device__ void advance() {
    if (++stage == stages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

} // namespace fp8_many
