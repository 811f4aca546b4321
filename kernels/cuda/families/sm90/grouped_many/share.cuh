// What blocks of grouped_many/kernel.cuh share out among them, and what a block keeps in shared memory.
#pragma once

#include "../../../device/cursor.cuh"
#include "../../../device/ptx.cuh"
#include "../hopper/product.h"
#include "config.h"

#include <cuda.h>

namespace grouped_many {

constexpr int groups = 2, consumers = 128 * groups, threads = consumers + 128, halves = 2;
constexpr int consumer_registers = 232, producer_registers = 40;
static_assert(consumers * consumer_registers + 128 * producer_registers <= 65536, "a multiprocessor's");
constexpr int stages = GROUPED_MANY_STAGES, step_bytes = GROUPED_MANY_STEP;
constexpr uint32_t half_bytes = 64 * step_bytes; // of W: 64 rows
constexpr int out_rows = 64;                     // of y that a warpgroup puts into order at a time
constexpr int out_pitch = 64 * 2 + 16;           // bytes: eight of these rows lie in different banks

// A launch. `pieces`: of 256 rows of W, of an expert.
struct work {
  hopper_product product;
  int pieces, steps;
  CUtensorMap w, x[GROUPED_MANY_BOXES];
};

// Rows [row, row + 256) of an expert's W by a tile of x.
struct piece {
  int expert, first, rows, row; // expert below zero: there is none any more
};

// A piece and what y is made with: asked for while the piece before is multiplied.
struct beside {
  piece of;
  float x_scale[GROUPED_MANY_COLUMNS];
  int pair[GROUPED_MANY_COLUMNS]; // the row of y
  float w_scale[GROUPED_MANY_ROWS], bias[GROUPED_MANY_ROWS];
};

struct shared {
  static constexpr uint32_t w_bytes = GROUPED_MANY_ROWS * step_bytes, x_bytes = GROUPED_MANY_COLUMNS * step_bytes;
  uint8_t ring[stages][w_bytes + x_bytes]; // the swizzle counts from a multiple of 1024
  alignas(16) uint8_t out[groups][out_rows * out_pitch];
  alignas(16) beside side[2]; // of pieces in turn
  uint64_t full[stages], empty[stages];
  uint64_t named[2], fetched[2], written[2]; // the piece is known, all of `side` is there, and is free again
};

using cursor = cursor_of<stages>;

} // namespace grouped_many
