/* Register tiles: some rows of x by some vectors of columns. Text of each micro_*.c, which defines before
 *   LANES, counts, lanes   s32 and f32 of a vector
 *   ROWS, VECTORS          of the largest tile whose sums stay in registers
 *   FEW_VECTORS            of tiles of one and two rows; VECTORS where it is not defined
 *   multiply_integer       counts (counts sum, counts w, counts x): four u8 of w with four s8 of x a lane
 *   multiply_words         the same of two s16 each, where HAS_WORDS; then no multiply_integer
 *   multiply_f32           lanes (lanes sum, lanes w, lanes x)
 *   multiply_bf16          lanes (lanes sum, counts w, counts x), where HAS_BF16
 * and NO_REALS, NO_INTEGERS where another set's tiles of f32, of integers are its own, too (micro.c). */
#ifndef KERNELS_CPU_MICRO_MICRO_TILE_H
#define KERNELS_CPU_MICRO_MICRO_TILE_H

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
  const counts none = {0};
  UNROLL for (int row = 0; row < rows; row++) {
    UNROLL for (int v = 0; v < vectors; v++) {
      if (tile->start != NULL) {
        sum[row][v] = broadcast((uint32_t)tile->start[row]);
      } else {
        sum[row][v] = tile->first ? none : load_counts(sums_s32(tile, row, column + v * LANES));
      }
    }
  }
}

static ALWAYS_INLINE void begin_real(const struct micro_tile *tile, int rows, int column, int vectors,
                                     lanes sum[][FEW_VECTORS]) {
  const lanes none = {0};
  bool zero = tile->first || is_scaled(tile);
  UNROLL for (int row = 0; row < rows; row++) {
    UNROLL for (int v = 0; v < vectors; v++) {
      sum[row][v] = zero ? none : load_lanes(sums_f32(tile, row, column + v * LANES));
    }
  }
}

static ALWAYS_INLINE void end_scaled(const struct micro_tile *tile, int row, int column, lanes sum) {
  lanes scale =
      tile->column_scale != NULL ? load_lanes(tile->column_scale + column) : broadcast_lanes(tile->row_scale[row]);
  const lanes none = {0};
  lanes before = tile->first ? none : load_lanes(sums_f32(tile, row, column));
  store_lanes(sums_f32(tile, row, column), multiply_f32(before, sum, scale));
}

/* The numbers of a row: what finish_f32 makes of its sums. */
static ALWAYS_INLINE void finish_row(struct micro_finish finish, int row, int column, int vectors, const lanes *sum) {
  lanes factor = broadcast_lanes((float)finish.factors[row]);
  float *to = finish.to + row * finish.stride + column;
  UNROLL for (int v = 0; v < vectors; v++) {
    store_lanes(to + v * LANES, sum[v] * (factor * load_lanes(finish.scales + column + v * LANES)));
  }
}

static ALWAYS_INLINE void end_integer(const struct micro_tile *tile, int rows, int column, int vectors,
                                      counts sum[][FEW_VECTORS]) {
  bool scaled = is_scaled(tile);
  if (tile->finish != NULL) {
    const struct micro_finish finish = *tile->finish;
    UNROLL for (int row = 0; row < rows; row++) {
      lanes values[FEW_VECTORS];
      UNROLL for (int v = 0; v < vectors; v++) {
        values[v] = __builtin_convertvector(sum[row][v], lanes);
      }
      finish_row(finish, row, column, vectors, values);
    }
    return;
  }
  UNROLL for (int row = 0; row < rows; row++) {
    UNROLL for (int v = 0; v < vectors; v++) {
      if (scaled) {
        end_scaled(tile, row, column + v * LANES, __builtin_convertvector(sum[row][v], lanes));
      } else {
        store_counts(sums_s32(tile, row, column + v * LANES), sum[row][v]);
      }
    }
  }
}

static ALWAYS_INLINE void end_real(const struct micro_tile *tile, int rows, int column, int vectors,
                                   lanes sum[][FEW_VECTORS]) {
  bool scaled = is_scaled(tile);
  if (tile->finish != NULL) {
    const struct micro_finish finish = *tile->finish;
    UNROLL for (int row = 0; row < rows; row++) {
      finish_row(finish, row, column, vectors, sum[row]);
    }
    return;
  }
  UNROLL for (int row = 0; row < rows; row++) {
    UNROLL for (int v = 0; v < vectors; v++) {
      if (scaled) {
        end_scaled(tile, row, column + v * LANES, sum[row][v]);
      } else {
        store_lanes(sums_f32(tile, row, column + v * LANES), sum[row][v]);
      }
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

/* A function for each number of rows, all of the columns. */
#define ROW_CASE(block, rows_, vectors_)                                                                               \
  case rows_:                                                                                                          \
    block(tile, rows_, column, vectors_);                                                                              \
    break;
#define ROW_CASES(block, vectors)                                                                                      \
  ROW_CASE(block, 1, vectors)                                                                                          \
  ROW_CASE(block, 2, vectors)                                                                                          \
  ROW_CASE(block, 3, vectors)                                                                                          \
  ROW_CASE(block, 4, vectors)
#define ROW_CASES_6(block, vectors)                                                                                    \
  ROW_CASES(block, vectors)                                                                                            \
  ROW_CASE(block, 5, vectors)                                                                                          \
  ROW_CASE(block, 6, vectors)
#define ROW_CASES_8(block, vectors)                                                                                    \
  ROW_CASES_6(block, vectors)                                                                                          \
  ROW_CASE(block, 7, vectors)                                                                                          \
  ROW_CASE(block, 8, vectors)
#define ROW_CASES_12(block, vectors)                                                                                   \
  ROW_CASES_8(block, vectors)                                                                                          \
  ROW_CASE(block, 9, vectors)                                                                                          \
  ROW_CASE(block, 10, vectors)                                                                                         \
  ROW_CASE(block, 11, vectors)                                                                                         \
  ROW_CASE(block, 12, vectors)
#define TILE_OF(name, block, cases)                                                                                    \
  static void name(const struct micro_tile *tile) {                                                                    \
    int column = 0;                                                                                                    \
    if (FEW_VECTORS > VECTORS && tile->rows <= 2) {                                                                    \
      for (; column + FEW_VECTORS * LANES <= tile->width; column += FEW_VECTORS * LANES) {                             \
        switch (tile->rows) {                                                                                          \
          ROW_CASE(block, 1, FEW_VECTORS)                                                                              \
          ROW_CASE(block, 2, FEW_VECTORS)                                                                              \
        }                                                                                                              \
      }                                                                                                                \
    }                                                                                                                  \
    for (; column + VECTORS * LANES <= tile->width; column += VECTORS * LANES) {                                       \
      switch (tile->rows) { cases(block, VECTORS) }                                                                    \
    }                                                                                                                  \
    for (; MICRO_VECTOR % (VECTORS * LANES) != 0 && column < tile->width; column += LANES) {                           \
      switch (tile->rows) { cases(block, 1) }                                                                          \
    }                                                                                                                  \
  }
#define UNPACK_TILE(name, block) TILE_OF(name, block, ROW_CASES_8)
#if ROWS == 4
#define TILE(name, block) TILE_OF(name, block, ROW_CASES)
#elif ROWS == 6
#define TILE(name, block) TILE_OF(name, block, ROW_CASES_6)
#elif ROWS == 8
#define TILE(name, block) TILE_OF(name, block, ROW_CASES_8)
#else
#define TILE(name, block) TILE_OF(name, block, ROW_CASES_12)
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

#endif
