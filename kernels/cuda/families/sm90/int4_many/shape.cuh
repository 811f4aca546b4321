// What of int4_many/kernel.cuh depends on the types, on how wide a tile is, and on how W is stored; its other parts are
// those of int2_many.
#pragma once

#include "../int2_many/share.cuh"
#include "../int4/layout.h"
#include "../int4/nvfp4.cuh"
#include "config.h"

#include <cuda_bf16.h>

namespace int4_many {

// A weight's tiles (int4/layout.h): MXFP4 or NVFP4 (8 groups), or else INT4, or where x is INT8 INT4A8; groups of K
// with a scale in 128, and whether they have zero points.
template <bool kMx, int kGroups, bool kZeros> struct weight_of {
  static constexpr bool mx = kMx, zeros = kZeros, factors = kGroups == INT4_GROUPS_MOST;
  static constexpr int groups = kGroups;
  static constexpr uint32_t half_bytes = INT4_HALF_SCALES + (kMx ? 32 : 64) * kGroups + (kZeros ? 32 * kGroups : 0);
  static_assert(kMx ? !kZeros && (kGroups == 4 || factors) : kGroups <= 4);
};

template <typename X, int kEights, typename Weight, int4_many_kind kKind> struct shape {
  using number = X;
  using weight = Weight;
  static constexpr bool int8 = std::is_same_v<X, int8_t>, f16 = std::is_same_v<X, __half>, pairs = false;
  static constexpr bool factors = Weight::factors;
  static constexpr float unit = !factors ? 1.0f : f16 ? codes4::e4m3_unit<__half> : codes4::e4m3_unit<__nv_bfloat16>;
  static constexpr int eights = kEights, columns = 8 * kEights;
  // Beside few columns scaling sums takes no more instructions than scaling numbers, of which it is exact.
  static constexpr bool scales_w =
      kKind == INT4_MANY_SCALED && (Weight::mx || columns > 64 || (Weight::groups > 1 && columns > 16));
  // Wide tiles of bf16 have no registers for sums of a scale's group beside those of all.
  static constexpr bool rescales = kKind == INT4_MANY_SUMS && columns > 64;
  static constexpr int groups = int4_many_groups(kKind, columns); // blocks of 64 rows of W in a tile
  static constexpr int consumers = 128 * groups, helpers = 128, threads = consumers + helpers;
  static constexpr int arrivals = int8 ? consumers / 32 : consumers;
  static constexpr int registers = groups == 4 ? 96 : 128, producer_registers = 32;
  static constexpr int consumer_registers = (threads * registers - helpers * producer_registers) / consumers;
  static_assert(consumers * consumer_registers + helpers * producer_registers == threads * registers);
  // Of W in a unit: 128 of K, or with x of INT8, which is half as wide, 256.
  static constexpr int tiles = int8 ? 2 : 1;
  static constexpr uint32_t tile_bytes = tiles * 2 * Weight::half_bytes;
  static constexpr uint32_t half_bytes = columns * 128, x_bytes = 2 * half_bytes, w_bytes = groups * tile_bytes;
  static constexpr uint32_t pair_bytes = 0;
  static constexpr int stages = (int2_many::ring_bytes - 1024) / (x_bytes + w_bytes);
};

using int2_many::cursor;
using int2_many::keep;
using int2_many::shared;
using int2_many::work;

// Where a thread's codes, scales and zero points are in a tile.
template <typename Weight> struct place_of {
  uint32_t codes, scales, zeros;

  __device__ place_of(uint32_t tile, uint32_t thread) {
    const uint32_t half = tile + thread / 64 * Weight::half_bytes, unit = thread / 32 % 2, lane = thread % 32;
    codes = half + unit * 2 * INT4_UNIT_BYTES + lane * 16;
    scales = half + INT4_HALF_SCALES + (unit * 8 + lane / 4) * (Weight::mx ? 2 : 4) * Weight::groups;
    zeros = half + INT4_HALF_SCALES + 64 * Weight::groups + (unit * 8 + lane / 4) * 2 * Weight::groups;
  }
};

} // namespace int4_many
