/* Tiles of ROWS rows of x that lie interleaved: one stream, which one register goes through. Text of micro_avx2*.c,
 * behind micro_tile.h. Many rows take most of a product's time here, so some steps are unrolled, and the lines of the
 * next tile's x are asked for by the last columns alone. */
#pragma once

#include "micro_tile.h"

#define INTERLEAVED_STEPS 8
#define INTERLEAVED(kind, sum_type, ending, multiply)                                                                  \
  static ALWAYS_INLINE void interleaved_step_##kind(const uint32_t *x, const uint32_t *w,                              \
                                                    sum_type sum[][FEW_VECTORS]) {                                     \
    sum_type w_now[VECTORS];                                                                                           \
    UNROLL for (int v = 0; v < VECTORS; v++) {                                                                         \
      __builtin_memcpy(&w_now[v], w + v * LANES, sizeof(w_now[v]));                                                    \
    }                                                                                                                  \
    UNROLL for (int row = 0; row < ROWS; row++) {                                                                      \
      sum_type x_now = (sum_type)broadcast(x[row]);                                                                    \
      UNROLL for (int v = 0; v < VECTORS; v++) {                                                                       \
        sum[row][v] = multiply(sum[row][v], w_now[v], x_now);                                                          \
      }                                                                                                                \
    }                                                                                                                  \
  }                                                                                                                    \
  static ONCE void interleaved_##kind(const struct micro_tile *tile, int column) {                                     \
    sum_type sum[ROWS][FEW_VECTORS];                                                                                   \
    const uint32_t *x = tile->x, *w = (const uint32_t *)tile->w + column;                                              \
    int64_t left = tile->steps, next = column + VECTORS * LANES == tile->width ? ROWS * tile->x_stride : 0;            \
    begin_##ending(tile, ROWS, column, VECTORS, sum);                                                                  \
    for (; left >= INTERLEAVED_STEPS; left -= INTERLEAVED_STEPS) {                                                     \
      UNROLL for (int line = 0; next != 0 && line < INTERLEAVED_STEPS * ROWS; line += LINE_DWORDS) {                   \
        __builtin_prefetch(x + next + line);                                                                           \
      }                                                                                                                \
      UNROLL for (int i = 0; i < INTERLEAVED_STEPS; i++, x += ROWS, w += tile->width) {                                \
        interleaved_step_##kind(x, w, sum);                                                                            \
      }                                                                                                                \
    }                                                                                                                  \
    for (; left > 0; left--, x += ROWS, w += tile->width) {                                                            \
      interleaved_step_##kind(x, w, sum);                                                                              \
    }                                                                                                                  \
    end_##ending(tile, ROWS, column, VECTORS, sum);                                                                    \
  }                                                                                                                    \
  static void tile_interleaved_##kind(const struct micro_tile *tile) {                                                 \
    for (int column = 0; column < tile->width; column += VECTORS * LANES) {                                            \
      interleaved_##kind(tile, column);                                                                                \
    }                                                                                                                  \
  }

INTERLEAVED(words, counts, integer, multiply_words)
INTERLEAVED(f32, lanes, real, multiply_f32)
