// What blocks of grouped/kernel.cuh share out among them, and what a block keeps in shared memory.
#pragma once

#include "../../../device/cursor.cuh"
#include "../../../device/ptx.cuh"
#include "../hopper/product.h"
#include "config.h"

#include <cuda.h>

namespace grouped {

// How sums leave the tensor cores, FP8's as hopper/config.h says; of 16-bit numbers they stay.
enum class sums { integers, every_128, every_32, block_scaled, f16, bf16 };

constexpr int widths = GROUPED_WIDTHS; // of tiles in the tensor cores: GROUPED_WIDTH

// A launch. `pieces`: of 64 or 128 rows of W, of an expert.
struct work {
  hopper_product product;
  int pieces, steps, stages, columns;
  CUtensorMap w, x[widths]; // x in boxes of as many rows as the widths have
};

// Rows [row, row + 64 * groups) of an expert's W by a tile of x.
struct piece {
  int expert, first, rows, row; // expert below zero: there is none any more
};

__device__ inline int width_of(int rows) {
  return rows <= 8 ? 0 : rows <= 16 ? 1 : rows <= 32 ? 2 : rows <= 64 ? 3 : rows <= 96 ? 4 : 5;
}

// Behind the ring in shared memory.
template <int kGroups> struct shared {
  static constexpr int pitch = 16 * 4 + 16;        // bytes: of a row of y on its way, the 16 for other banks
  alignas(16) uint8_t out[kGroups * 4][8 * pitch]; // by warps
  alignas(16) piece pieces[GROUPED_STAGES_MOST];   // which begin with a stage
  float x_scale[kGroups][GROUPED_COLUMNS_MOST];
  int pair[kGroups][GROUPED_COLUMNS_MOST];
  uint64_t full[GROUPED_STAGES_MOST], empty[GROUPED_STAGES_MOST];
};

} // namespace grouped
