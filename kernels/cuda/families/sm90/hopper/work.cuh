// How a launch is cut up into blocks.
#pragma once

#include "config.h"
#include "product.h"

namespace hopper {

constexpr int chunk_bytes = 128;            // of K: one row of the tensor cores' swizzled form
constexpr int step_bytes = 2 * chunk_bytes; // of K that arrive together
constexpr int group_rows = 64;              // of W a warpgroup
constexpr int warp_rows = 16;               // of these a warp
constexpr int join_barrier_bytes = 16;      // what the barrier for sums of other blocks takes

// What the first copies want stands together: each cache line of parameters is waited for.
struct work {
  int rows;          // of W a block
  int ahead;         // steps that copies run before the tensor cores
  int steps, longer; // of K a rank; so many ranks, the first, have one more
  int places;        // eights of columns that a rank joins, at most
  int sums;          // where in shared memory those of other ranks come
  int inverse;       // 65536 divided by the rows that are copied at a time, rounded up: a division is long
  int column_tiles;  // of x; the block index runs through them first, so that W is read from memory once
  hopper_start start;
  hopper_product product;
};

// What of K, W and x a block has.
struct part {
  int first_row, first_m; // of W and x
  int rows, m;            // that there are
  int first_step, steps;

  // Divisions are long; most launches need none.
  __device__ part(const work &w, int columns) {
    const int rank = static_cast<int>(blockIdx.y), block = static_cast<int>(blockIdx.x);
    const int tile = w.column_tiles == 1 ? block : block / w.column_tiles;
    first_row = tile * w.rows;
    first_m = (block - tile * w.column_tiles) * columns;
    rows = min(w.rows, static_cast<int>(w.product.n) - first_row);
    m = min(columns, static_cast<int>(w.product.m) - first_m);
    first_step = w.steps * rank + min(rank, w.longer);
    steps = w.steps + (rank < w.longer ? 1 : 0);
  }
};

} // namespace hopper
