// How the work of fp8_many/kernel.cuh is shared out, and what a block of it keeps in shared memory.
#pragma once

#include "../../../device/ptx.cuh"
#include "../hopper/product.h"
#include "config.h"

#include <cuda.h>
#include <type_traits>

namespace fp8_many {

// A launch: the product, how it is cut up, and W and x for the copy engine. `dependent`: the kernel ahead may still
// run.
struct work {
  hopper_product product;
  fp8_many_plan plan;
  bool dependent;
  CUtensorMap w, x;
};

// How sums are made; hopper/config.h says why FP8's leave the tensor cores, and how often.
enum class sums { integers, every_128, every_32 };

// y of 16 bits, f16 or bf16, as the product says.
struct half_or_bf16 {
  uint16_t bits;
};

constexpr int block_shared_most = 227 * 1024;
constexpr int even(int count) {
  return (count + 1) / 2 * 2;
}

// A tile and who computes it: `groups` warpgroups have `slabs` times 64 rows of W each.
template <typename OutType, sums kSums, int kRows, int kColumns> struct tile_of {
  using Out = OutType;
  using Sum = std::conditional_t<kSums == sums::integers, int, float>;
  static constexpr sums kind = kSums;
  static constexpr int rows = kRows, columns = kColumns, eights = columns / 8, of_thread = columns / 2;
  static constexpr int groups = rows % 192 == 0 ? 3 : 2, slabs = rows / 64 / groups;
  static constexpr int consumers = 128 * groups, threads = consumers + 128;
  static constexpr int consumer_registers = groups == 3 ? 160 : 232, producer_registers = groups == 3 ? 32 : 40;
  static_assert(consumers * consumer_registers + 128 * producer_registers <= 65536, "a multiprocessor's");
  // Rows of y that a warpgroup puts into order at a time, and bytes from one to the next: eight of these lie in
  // different banks.
  static constexpr int out_rows = (sizeof(Out) == 2 ? 64 : 32) / (groups == 3 ? 2 : 1);
  static constexpr int out_pitch = 64 * static_cast<int>(sizeof(Out)) + 16;
  static constexpr uint32_t w_bytes = rows * FP8_MANY_STEP, x_bytes = columns * FP8_MANY_STEP;
  static constexpr uint32_t slot_bytes = w_bytes + x_bytes;
  // Behind the ring: rows of y, scales of x, barriers, and what is left out so that the ring begins at its multiple.
  static constexpr int behind = groups * (out_rows * out_pitch + 128 * 4) + 16 * 16 + 16;
  static constexpr int fit = (block_shared_most - 1024 - behind) / static_cast<int>(slot_bytes);
  static constexpr int slots = fit < 8 ? fit : 8;

  // How many times eight columns a block of so many that share K adds up, at most; an even number.
  template <int kSplit> static constexpr int eights_of_block = even((eights + kSplit - 1) / kSplit);
  template <int kSplit>
  static constexpr int joined_slots = ((kSplit - 1) * groups * slabs * eights_of_block<kSplit> * 2048 +
                                       static_cast<int>(slot_bytes) - 1) /
                                      static_cast<int>(slot_bytes);
};

template <typename T> struct shared {
  uint8_t ring[T::slots][T::slot_bytes]; // the swizzle counts from a multiple of 1024
  alignas(16) uint8_t out[T::groups][T::out_rows * T::out_pitch];
  float x_scale[T::groups][128];
  uint64_t full[T::slots], empty[T::slots], joined;
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
template <typename T> __device__ inline uint32_t stages_of(const fp8_many_plan &plan) {
  return T::slots - (plan.split_k == 1   ? 0
                     : plan.split_k == 2 ? T::template joined_slots<2>
                     : plan.split_k == 3 ? T::template joined_slots<3>
                                         : T::template joined_slots<4>);
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
