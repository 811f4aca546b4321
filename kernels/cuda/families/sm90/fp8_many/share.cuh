// How the work of fp8_many/kernel.cuh is shared out, and what a block of it keeps in shared memory.
#pragma once

#include "../../../device/ptx.cuh"
#include "../hopper/product.h"
#include "../int2/a8_layout.h"
#include "config.h"

#include <cuda.h>
#include <type_traits>

namespace fp8_many {

// A launch: the product, how it is cut up, and W (but for INT2A8's tiles) and x for the copy engine.
struct work {
  hopper_product product;
  fp8_many_plan plan;
  CUtensorMap w, x;
};

// How sums are made; hopper/config.h says why FP8's leave the tensor cores, and how often. `scaled`: of INT2A8, whose
// integers leave every 128 of K.
enum class sums { integers, every_128, every_32, scaled };

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
  static constexpr bool coded = kSums == sums::scaled;
  static constexpr int step = coded ? int{INT2A8_TILE_K} : int{FP8_MANY_STEP};
  static constexpr int rows = kRows, columns = kColumns, eights = columns / 8, of_thread = columns / 2;
  static constexpr int groups = rows % 192 == 0 ? 3 : 2, slabs = rows / 64 / groups;
  static constexpr int consumers = 128 * groups, threads = consumers + 128;
  static constexpr int consumer_registers = groups == 3 ? 160 : 232, producer_registers = groups == 3 ? 32 : 40;
  static_assert(consumers * consumer_registers + 128 * producer_registers <= 65536, "a multiprocessor's");
  // Rows of y that a warpgroup puts into order at a time, and bytes from one to the next: eight of these lie in
  // different banks.
  static constexpr int out_rows = (sizeof(Out) == 2 ? 64 : 32) / (groups == 3 ? 2 : 1);
  static constexpr int out_pitch = 64 * static_cast<int>(sizeof(Out)) + 16;
  static constexpr uint32_t w_bytes = coded ? rows / 64 * INT2A8_TILE_BYTES : rows * FP8_MANY_STEP;
  static constexpr int x_at = (w_bytes + 1023) / 1024 * 1024, slot_bytes = x_at + columns * step;
  // Behind the ring: rows of y, scales of x, barriers, and what is left out so that the ring begins at its multiple.
  static constexpr int behind = groups * (out_rows * out_pitch + 128 * 4) + 16 * 16 + 16;
  static constexpr int ring_bytes = (block_shared_most - 1024 - behind) / 128 * 128;
  static constexpr int slots = ring_bytes / slot_bytes < 8 ? ring_bytes / slot_bytes : 8;

  // How many times eight columns a block of so many that share K adds up, at most; an even number.
  template <int kSplit> static constexpr int eights_of_block = even((eights + kSplit - 1) / kSplit);
  // Slots that are left where blocks get sums from each other behind them.
  template <int kSplit>
  static constexpr int
      slots_beside = (ring_bytes - (kSplit - 1) * groups * slabs * eights_of_block<kSplit> * 2048) / slot_bytes;
};

template <typename T> struct shared {
  uint8_t ring[T::ring_bytes]; // slots; the swizzle counts from a multiple of 1024
  alignas(16) uint8_t out[T::groups][T::out_rows * T::out_pitch];
  float x_scale[T::groups][128];
  uint64_t full[T::slots], empty[T::slots], joined;
};

__device__ inline uint32_t quotient(uint32_t value, const fp8_many_divisor &divisor) {
  return divisor.inverse ? __umulhi(value, divisor.inverse) : value;
}

// Steps [first, last) of a tile's K; split: blocks that have it together.
struct segment {
  uint32_t tile, first, last;
  int split;
};

// What a block computes: every so many-th of the tiles that a block has for itself, and then its part of its cluster's.
struct segments {
  uint32_t done = 0;

  // False where there is none any more.
  __device__ bool next(const fp8_many_plan &plan, segment &out) {
    const uint32_t steps = plan.steps, tiles = plan.w_tiles * plan.x_tiles, at = done++;
    if (at < static_cast<uint32_t>(plan.whole))
      out = {at * plan.blocks + blockIdx.y * plan.split_k + blockIdx.x, 0, steps, 1};
    else {
      const uint32_t first = min(steps, plan.steps_of_block * blockIdx.x);
      out = {at > static_cast<uint32_t>(plan.whole) || plan.split_k == 1 ? tiles : at * plan.blocks + blockIdx.y, first,
             min(steps, first + plan.steps_of_block), plan.split_k};
    }
    return out.tile < tiles;
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

// Slots of the ring that copies use; behind them blocks of a cluster get sums from each other.
template <typename T> __device__ inline uint32_t stages_of(const fp8_many_plan &plan) {
  return min(T::slots, plan.split_k == 1   ? T::slots
                       : plan.split_k == 2 ? T::template slots_beside<2>
                       : plan.split_k == 3 ? T::template slots_beside<3>
                                           : T::template slots_beside<4>);
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

// The lower half of an operand's descriptor, which alone differs; adding 2 moves on by 32 bytes of K.
__device__ inline uint32_t lower_half(uint32_t address) {
  return static_cast<uint32_t>(ptx::swizzled_descriptor(address));
}

__device__ inline uint64_t descriptor(uint32_t lower) {
  return (ptx::swizzled_descriptor(0) >> 32 << 32) | lower;
}

template <typename T> __device__ inline void give_back(shared<T> &s, uint32_t stage) {
  if (threadIdx.x % 32 == 0)
    ptx::barrier_arrive(ptx::shared_address(&s.empty[stage]));
}

} // namespace fp8_many
