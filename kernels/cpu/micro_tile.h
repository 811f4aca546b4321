/* Register tiles: 4 rows of x by 2 rows of W. Text of each micro_*.c, which defines before
 *   LANES, lanes          f32 in a vector, and the vector
 *   multiply_add          lanes (lanes sum, lanes x, lanes w)
 *   PAIRS, pairs, counts  s16 in a vector, the vector, and the vector of s32 sums
 *   multiply_pairs        counts (counts sum, pairs x, pairs w) */
#ifndef KERNELS_CPU_MICRO_TILE_H
#define KERNELS_CPU_MICRO_TILE_H

#include "micro.h"

#define TILE_ROWS 4
#define TILE_COLUMNS 2
typedef int32_t totals __attribute__((vector_size(sizeof(counts))));

#define ALWAYS_INLINE inline __attribute__((always_inline))

static ALWAYS_INLINE lanes load_lanes(const float *from) {
  lanes value;
  __builtin_memcpy(&value, from, sizeof(value));
  return value;
}

static ALWAYS_INLINE pairs load_pairs(const int16_t *from) {
  pairs value;
  __builtin_memcpy(&value, from, sizeof(value));
  return value;
}

static ALWAYS_INLINE void promote(float *to, lanes sum, float scale) {
  lanes total = load_lanes(to) + sum * scale;
  __builtin_memcpy(to, &total, sizeof(total));
}

static ALWAYS_INLINE void add_counts(int32_t *to, totals sum) {
  totals total;
  __builtin_memcpy(&total, to, sizeof(total));
  total += sum;
  __builtin_memcpy(to, &total, sizeof(total));
}

static ALWAYS_INLINE float group_scale(const struct micro_tile *tile, int row, int column, int group) {
  float scale = tile->x_scale != NULL ? tile->x_scale[row * tile->x_scale_stride + group] : 1;
  return tile->w_scale != NULL ? scale * tile->w_scale[column * MICRO_GROUPS + group] : scale;
}

/* Rows from `first` and columns from `begin`. `rows` and `columns` are constants where this is inlined, so that `sum`
 * lives in registers. */
static ALWAYS_INLINE void block_f32(const struct micro_tile *tile, int first, int rows, int begin, int columns) {
  const float *x = (const float *)tile->x + first * tile->x_stride, *w = tile->w;
  float *sums = tile->sums;
  for (int group = 0; group < tile->groups; group++) {
    lanes sum[TILE_COLUMNS][TILE_ROWS] = {0};
    for (int k = group * MICRO_GROUP; k < (group + 1) * MICRO_GROUP; k += LANES) {
      for (int row = 0; row < rows; row++) {
        lanes value = load_lanes(x + row * tile->x_stride + k);
        for (int column = 0; column < columns; column++) {
          sum[column][row] = multiply_add(sum[column][row], value, load_lanes(w + (begin + column) * MICRO_CHUNK + k));
        }
      }
    }
    for (int column = 0; column < columns; column++) {
      for (int row = 0; row < rows; row++) {
        promote(sums + ((begin + column) * MICRO_ROWS + first + row) * MICRO_LANES, sum[column][row],
                group_scale(tile, first + row, begin + column, group));
      }
    }
  }
}

static ALWAYS_INLINE void block_s16(const struct micro_tile *tile, int first, int rows, int begin, int columns) {
  const int16_t *x = (const int16_t *)tile->x + first * tile->x_stride, *w = tile->w;
  int32_t *sums = tile->sums;
  counts sum[TILE_COLUMNS][TILE_ROWS] = {0};
  for (int k = 0; k < tile->groups * MICRO_GROUP; k += PAIRS) {
    for (int row = 0; row < rows; row++) {
      pairs value = load_pairs(x + row * tile->x_stride + k);
      for (int column = 0; column < columns; column++) {
        sum[column][row] = multiply_pairs(sum[column][row], value, load_pairs(w + (begin + column) * MICRO_CHUNK + k));
      }
    }
  }
  for (int column = 0; column < columns; column++) {
    for (int row = 0; row < rows; row++) {
      add_counts(sums + ((begin + column) * MICRO_ROWS + first + row) * MICRO_LANES, (totals)sum[column][row]);
    }
  }
}

/* Some rows of x with all of the columns, while those rows are in the first-level cache. Every element takes the same
 * steps whatever the block it is in. */
#define COLUMNS(block, rows)                                                                                           \
  for (int column = 0; column < tile->columns; column += TILE_COLUMNS) {                                               \
    if (tile->columns - column >= TILE_COLUMNS) {                                                                      \
      block(tile, row, rows, column, TILE_COLUMNS);                                                                    \
    } else {                                                                                                           \
      block(tile, row, rows, column, 1);                                                                               \
    }                                                                                                                  \
  }
#define TILE(name, block)                                                                                              \
  static void name(const struct micro_tile *tile) {                                                                    \
    int row = 0;                                                                                                       \
    for (; tile->rows - row >= TILE_ROWS; row += TILE_ROWS) {                                                          \
      COLUMNS(block, TILE_ROWS)                                                                                        \
    }                                                                                                                  \
    if (tile->rows - row >= 2) {                                                                                       \
      COLUMNS(block, 2)                                                                                                \
      row += 2;                                                                                                        \
    }                                                                                                                  \
    if (row < tile->rows) {                                                                                            \
      COLUMNS(block, 1)                                                                                                \
    }                                                                                                                  \
  }
TILE(tile_f32, block_f32)
TILE(tile_s16, block_s16)

/* The table of the file that includes this. */
#define MICRO_OPS(set, usable_function)                                                                                \
  const struct micro_ops micro_##set = {                                                                               \
      .name = #set,                                                                                                    \
      .usable = usable_function,                                                                                       \
      .widen_f16 = widen_f16,                                                                                          \
      .widen_bf16 = widen_bf16,                                                                                        \
      .widen_e4m3 = widen_e4m3,                                                                                        \
      .widen_int8 = widen_int8,                                                                                        \
      .widen_int2 = widen_int2,                                                                                        \
      .largest = largest,                                                                                              \
      .quantize_int8 = quantize_int8,                                                                                  \
      .quantize_e4m3 = quantize_e4m3,                                                                                  \
      .tile_f32 = tile_f32,                                                                                            \
      .tile_s16 = tile_s16,                                                                                            \
  }

#endif
