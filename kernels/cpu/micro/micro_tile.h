/* Register tiles: some rows of x by some vectors of columns. Text of each micro_*.c, which defines before
 *   LANES, counts, lanes   s32 and f32 of a vector
 *   ROWS, VECTORS          of the largest tile whose sums stay in registers
 *   FEW_VECTORS            of tiles of one and two rows; VECTORS where it is not defined
 *   multiply_integer       counts (counts sum, counts w, counts x): four u8 of w with four s8 of x a lane
 *   multiply_words         the same of two s16 each, where HAS_WORDS; then no multiply_integer
 *   multiply_f32           lanes (lanes sum, lanes w, lanes x)
 *   multiply_bf16          lanes (lanes sum, counts w, counts x), where HAS_BF16
 * and NO_REALS, NO_INTEGERS where another set's tiles of f32, of integers are its own, too (micro.c). */
#pragma once

#include "micro.h"

#define ALWAYS_INLINE inline __attribute__((always_inline))
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UNROLL /* what they look at in each step would be unrolled, too, and compiled for minutes */
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#ifndef FEW_VECTORS
#define FEW_VECTORS VECTORS
#endif

static ALWAYS_INLINE counts load_counts(const void *from) {
  counts value;
  __builtin_memcpy(&value, from, sizeof(value));
  return value;
}

static ALWAYS_INLINE lanes load_lanes(const void *from) {
  lanes value;
  __builtin_memcpy(&value, from, sizeof(value));
  return value;
}

static ALWAYS_INLINE void store_counts(void *to, counts value) {
  __builtin_memcpy(to, &value, sizeof(value));
}

static ALWAYS_INLINE void store_lanes(void *to, lanes value) {
  __builtin_memcpy(to, &value, sizeof(value));
}

static ALWAYS_INLINE counts broadcast(uint32_t value) {
  return (counts){0} + (int32_t)value;
}

static ALWAYS_INLINE lanes broadcast_lanes(float value) {
  return (lanes){0} + value;
}

/* Rows of x by four pointers, so that all are within reach of an address: base, base + stride, base + 2 * stride. */
struct x_rows {
  const uint32_t *at[4];
  int64_t stride;
};

static ALWAYS_INLINE struct x_rows x_rows(const struct micro_tile *tile) {
  struct x_rows x = {.stride = tile->x_stride};
  UNROLL for (int i = 0; i < 4; i++) {
    x.at[i] = tile->x + 3 * i * tile->x_stride;
  }
  return x;
}

static ALWAYS_INLINE counts x_at(const struct x_rows *x, int row, int64_t step) {
  return broadcast(x->at[row / 3][row % 3 * x->stride + step]);
}

static ALWAYS_INLINE int32_t *sums_s32(const struct micro_tile *tile, int row, int column) {
  return (int32_t *)tile->sums + row * MICRO_WIDTH + column;
}

static ALWAYS_INLINE float *sums_f32(const struct micro_tile *tile, int row, int column) {
  return (float *)tile->sums + row * MICRO_WIDTH + column;
}

static ALWAYS_INLINE bool is_scaled(const struct micro_tile *tile) {
  return tile->row_scale != NULL || tile->column_scale != NULL;
}

static ALWAYS_INLINE void begin_integer(const struct micro_tile *tile, int rows, int column, int vectors,
                                        counts sum[][FEW_VECTORS]) {
  const int32_t *start = tile->start;
  const counts none = {0};
  if (start == NULL && !tile->first) {
    UNROLL for (int row = 0; row < rows; row++) {
      UNROLL for (int v = 0; v < vectors; v++) {
        sum[row][v] = load_counts(sums_s32(tile, row, column + v * LANES));
      }
    }
    return;
  }
  UNROLL for (int row = 0; row < rows; row++) {
    counts begin = start != NULL ? broadcast((uint32_t)start[row]) : none;
    UNROLL for (int v = 0; v < vectors; v++) {
      sum[row][v] = begin;
    }
  }
}

static ALWAYS_INLINE void begin_real(const struct micro_tile *tile, int rows, int column, int vectors,
                                     lanes sum[][FEW_VECTORS]) {
  const lanes none = {0};
  UNROLL for (int row = 0; row < rows; row++) {
    UNROLL for (int v = 0; v < vectors; v++) {
      sum[row][v] = none;
    }
  }
  if (tile->first || is_scaled(tile)) {
    return;
  }
  UNROLL for (int row = 0; row < rows; row++) {
    UNROLL for (int v = 0; v < vectors; v++) {
      sum[row][v] = load_lanes(sums_f32(tile, row, column + v * LANES));
    }
  }
}

/* What follows the steps of a tile, but for a store of its sums, is one function for tiles of all sizes, which finds
 * the sums in memory: [rows][stride]. */
#define ONCE __attribute__((noinline))

/* The numbers of rows: what finish_f32 makes of their sums. */
static ALWAYS_INLINE void finish_vectors(const struct micro_finish *finish, int rows, int column, int vectors,
                                         const lanes *sum, int stride) {
  const float *scales = finish->scales + column;
  float *to = finish->to + column;
  for (int row = 0; row < rows; row++, sum += stride, to += finish->stride) {
    lanes factor = broadcast_lanes((float)finish->factors[row]);
    for (int v = 0; v < vectors; v++) {
      store_lanes(to + v * LANES, sum[v] * (factor * load_lanes(scales + v * LANES)));
    }
  }
}

static ONCE void finish_rows(const struct micro_finish *finish, int rows, int column, int vectors, const lanes *sum,
                             int stride) {
  if (vectors == VECTORS) {
    finish_vectors(finish, rows, column, VECTORS, sum, stride);
  } else {
    finish_vectors(finish, rows, column, vectors, sum, stride);
  }
}

static ONCE void end_scaled(const struct micro_tile *tile, int rows, int column, int vectors, const lanes *sum,
                            int stride) {
  const lanes none = {0};
  for (int row = 0; row < rows; row++, sum += stride) {
    for (int v = 0; v < vectors; v++) {
      int at = column + v * LANES;
      lanes scale =
          tile->column_scale != NULL ? load_lanes(tile->column_scale + at) : broadcast_lanes(tile->row_scale[row]);
      lanes before = tile->first ? none : load_lanes(sums_f32(tile, row, at));
      store_lanes(sums_f32(tile, row, at), multiply_f32(before, sum[v], scale));
    }
  }
}

static ALWAYS_INLINE bool is_stored(const struct micro_tile *tile) {
  return tile->finish == NULL && !is_scaled(tile);
}

static ONCE void end_apart(const struct micro_tile *tile, int rows, int column, int vectors, const lanes *sum) {
  if (tile->finish != NULL) {
    finish_rows(tile->finish, rows, column, vectors, sum, FEW_VECTORS);
  } else {
    end_scaled(tile, rows, column, vectors, sum, FEW_VECTORS);
  }
}

static ALWAYS_INLINE void end_integer(const struct micro_tile *tile, int rows, int column, int vectors,
                                      counts sum[][FEW_VECTORS]) {
  if (!is_stored(tile)) {
    lanes values[ROWS][FEW_VECTORS];
    UNROLL for (int row = 0; row < rows; row++) {
      UNROLL for (int v = 0; v < vectors; v++) {
        values[row][v] = __builtin_convertvector(sum[row][v], lanes);
      }
    }
    end_apart(tile, rows, column, vectors, values[0]);
    return;
  }
  UNROLL for (int row = 0; row < rows; row++) {
    UNROLL for (int v = 0; v < vectors; v++) {
      store_counts(sums_s32(tile, row, column + v * LANES), sum[row][v]);
    }
  }
}

static ALWAYS_INLINE void end_real(const struct micro_tile *tile, int rows, int column, int vectors,
                                   lanes sum[][FEW_VECTORS]) {
  if (!is_stored(tile)) {
    lanes values[ROWS][FEW_VECTORS];
    UNROLL for (int row = 0; row < rows; row++) {
      UNROLL for (int v = 0; v < vectors; v++) {
        values[row][v] = sum[row][v];
      }
    }
    end_apart(tile, rows, column, vectors, values[0]);
    return;
  }
  UNROLL for (int row = 0; row < rows; row++) {
    UNROLL for (int v = 0; v < vectors; v++) {
      store_lanes(sums_f32(tile, row, column + v * LANES), sum[row][v]);
    }
  }
}

/* W as dwords. `rows` and `vectors` are constants where this is inlined, so that the sums live in registers. A line of
 * W is asked for some lines ahead: where W comes from memory the hardware alone stops at each page. Where W is a block
 * in the first cache, the lines that the next rows of x will be read from are asked for instead. */
#define PREFETCH_DWORDS 1024
#define LINE_DWORDS 16
#define BLOCK_DWORDS(kind, sum_type, ending, multiply, w_type, blocks)                                                 \
  static ALWAYS_INLINE void block_##kind(const struct micro_tile *tile, int rows, int column, int vectors) {           \
    sum_type sum[ROWS][FEW_VECTORS];                                                                                   \
    struct x_rows x = x_rows(tile);                                                                                    \
    const uint32_t *w = (const uint32_t *)tile->w + column;                                                            \
    begin_##ending(tile, rows, column, vectors, sum);                                                                  \
    for (int64_t step = 0, end;; step = end) {                                                                         \
      end = blocks && step + LINE_DWORDS < tile->steps ? step + LINE_DWORDS : tile->steps;                             \
      UNROLL for (int row = 0; blocks && row < rows; row++) {                                                          \
        __builtin_prefetch(tile->x + (rows + row) * tile->x_stride + step);                                            \
      }                                                                                                                \
      for (; step < end; step++, w += tile->width) {                                                                   \
        w_type w_now[FEW_VECTORS];                                                                                     \
        UNROLL for (int v = 0; v < vectors; v++) {                                                                     \
          __builtin_memcpy(&w_now[v], w + v * LANES, sizeof(w_now[v]));                                                \
          if (!blocks) {                                                                                               \
            __builtin_prefetch(w + v * LANES + PREFETCH_DWORDS);                                                       \
          }                                                                                                            \
        }                                                                                                              \
        UNROLL for (int row = 0; row < rows; row++) {                                                                  \
          w_type x_now = (w_type)x_at(&x, row, step);                                                                  \
          UNROLL for (int v = 0; v < vectors; v++) {                                                                   \
            sum[row][v] = multiply(sum[row][v], w_now[v], x_now);                                                      \
          }                                                                                                            \
        }                                                                                                              \
      }                                                                                                                \
      if (!blocks || end == tile->steps) {                                                                             \
        break;                                                                                                         \
      }                                                                                                                \
    }                                                                                                                  \
    end_##ending(tile, rows, column, vectors, sum);                                                                    \
  }
#ifndef BLOCKS_IN_CACHE
#define BLOCKS_IN_CACHE false
#endif

#ifdef NO_INTEGERS
#elif defined(HAS_WORDS)
BLOCK_DWORDS(words, counts, integer, multiply_words, counts, BLOCKS_IN_CACHE)
#else
BLOCK_DWORDS(integer, counts, integer, multiply_integer, counts, false)
#endif
#ifndef NO_REALS
BLOCK_DWORDS(f32, lanes, real, multiply_f32, lanes, BLOCKS_IN_CACHE)
#endif
#ifdef HAS_BF16
BLOCK_DWORDS(bf16, lanes, real, multiply_bf16, counts, false)
#endif

/* A function for each number of rows and of vectors, and one that goes through the columns. */
#define ROW_FUNCTION(name, block, rows_, vectors_)                                                                     \
  static ONCE void name##_##rows_##x##vectors_(const struct micro_tile *tile, int column) {                            \
    block(tile, rows_, column, vectors_);                                                                              \
  }
#define ROW_CASE(name, block, rows_, vectors_)                                                                         \
  case rows_:                                                                                                          \
    name##_##rows_##x##vectors_(tile, column);                                                                         \
    break;
#define ROWS_2(of, name, block, vectors) of(name, block, 1, vectors) of(name, block, 2, vectors)
#define ROWS_4(of, name, block, vectors)                                                                               \
  ROWS_2(of, name, block, vectors)                                                                                     \
  of(name, block, 3, vectors) of(name, block, 4, vectors)
#define ROWS_6(of, name, block, vectors)                                                                               \
  ROWS_4(of, name, block, vectors)                                                                                     \
  of(name, block, 5, vectors) of(name, block, 6, vectors)
#define ROWS_8(of, name, block, vectors)                                                                               \
  ROWS_6(of, name, block, vectors)                                                                                     \
  of(name, block, 7, vectors) of(name, block, 8, vectors)
#define ROWS_12(of, name, block, vectors)                                                                              \
  ROWS_8(of, name, block, vectors)                                                                                     \
  of(name, block, 9, vectors) of(name, block, 10, vectors) of(name, block, 11, vectors) of(name, block, 12, vectors)
/* Of four vectors, where there are such tiles. */
#if FEW_VECTORS > VECTORS
#define ROWS_FEW(of, name, block) ROWS_2(of, name, block, 4)
#else
#define ROWS_FEW(of, name, block)
#endif
#define TILE_OF(name, block, all_rows)                                                                                 \
  ROWS_FEW(ROW_FUNCTION, name, block)                                                                                  \
  all_rows(ROW_FUNCTION, name, block, 2) all_rows(ROW_FUNCTION, name, block, 1) static void name(                      \
      const struct micro_tile *tile) {                                                                                 \
    int column = 0;                                                                                                    \
    if (FEW_VECTORS > VECTORS && tile->rows <= 2) {                                                                    \
      for (; column + 4 * LANES <= tile->width; column += 4 * LANES) {                                                 \
        switch (tile->rows) { ROWS_FEW(ROW_CASE, name, block) }                                                        \
      }                                                                                                                \
    }                                                                                                                  \
    for (; column + 2 * LANES <= tile->width; column += 2 * LANES) {                                                   \
      switch (tile->rows) { all_rows(ROW_CASE, name, block, 2) }                                                       \
    }                                                                                                                  \
    for (; MICRO_VECTOR % (2 * LANES) != 0 && column < tile->width; column += LANES) {                                 \
      switch (tile->rows) { all_rows(ROW_CASE, name, block, 1) }                                                       \
    }                                                                                                                  \
  }
#define UNPACK_TILE(name, block) TILE_OF(name, block, ROWS_8)
#if ROWS == 4
#define TILE(name, block) TILE_OF(name, block, ROWS_4)
#elif ROWS == 6
#define TILE(name, block) TILE_OF(name, block, ROWS_6)
#elif ROWS == 8
#define TILE(name, block) TILE_OF(name, block, ROWS_8)
#else
#define TILE(name, block) TILE_OF(name, block, ROWS_12)
#endif

#ifdef NO_INTEGERS
#elif defined(HAS_WORDS)
TILE(tile_words, block_words)
#else
TILE(tile_integer, block_integer)
#endif
#ifndef NO_REALS
TILE(tile_f32, block_f32)
#endif
#ifdef HAS_BF16
TILE(tile_bf16, block_bf16)
#endif
