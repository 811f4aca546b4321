/* Tiles of the kernels for products of two tensors. Plain data; read by C and CUDA, and where there is no toolkit. */
#pragma once

#include "../linkage.h"

/* the general kernel's: of K, and rows of x and of W */
enum { GENERAL_STEP = 32, GENERAL_TILE = 64 };

/* Hopper's */
enum { WIDE_STEP = 64, WIDE_ALIGN = 16 /* bytes: of x, W and their strides */ };

struct wide_config {
  int columns; /* rows of W a tile: 64, 128 or 256 */
  int cluster; /* blocks that share copies of W: 1, or with an even number of tiles of x and 128 columns or more 2 */
};

/* Steps of K under way. */
static inline CPP_CONSTEXPR int wide_stages(int columns) {
  return columns == 256 ? 4 : columns == 128 ? 6 : 8;
}
