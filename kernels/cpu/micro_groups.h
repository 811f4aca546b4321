/* INT2A8: the exact sum of each group, scaled in registers. Text of micro_*.c, which define beside what micro_tile.h
 * wants
 *   load_halves            lanes (const void *from): as many f16
 * and where GROUP_SUMS, because a set has a faster way for codes up to 3 than multiply_integer,
 *   multiply_codes         counts (counts sum, counts w, counts x), from 0 on for the steps of one group
 *   group_sum              counts (counts sum): the s32 of these */
#ifndef KERNELS_CPU_MICRO_GROUPS_H
#define KERNELS_CPU_MICRO_GROUPS_H

#include "micro_tile.h"

#define GROUPS_VECTORS 4
#define GROUPS_PARTS (MICRO_WIDTH / (GROUPS_VECTORS * LANES))
#define PREFETCH_CODES2 4096

#ifdef GROUP_SUMS
static ALWAYS_INLINE counts group_begin(int32_t start) {
  (void)start;
  return (counts){0};
}

static ALWAYS_INLINE lanes group_end(counts sum, int32_t start) {
  return __builtin_convertvector(group_sum(sum) + start, lanes);
}
#else
#define multiply_codes multiply_integer
static ALWAYS_INLINE counts group_begin(int32_t start) {
  return broadcast((uint32_t)start);
}

static ALWAYS_INLINE lanes group_end(counts sum, int32_t start) {
  (void)start;
  return __builtin_convertvector(sum, lanes);
}
#endif

/* One group of dwords; `w` is left behind it. */
static ALWAYS_INLINE const uint32_t *group_dwords(const struct micro_groups *groups, const struct x_rows *x,
                                                  int64_t step, const uint32_t *w, int rows, int vectors,
                                                  counts sum[][GROUPS_VECTORS]) {
  for (int i = 0; i < MICRO_GROUP / 4; i++, w += groups->width) {
    counts w_now[GROUPS_VECTORS];
    UNROLL for (int v = 0; v < vectors; v++) {
      w_now[v] = load_counts(w + v * LANES);
    }
    UNROLL for (int row = 0; row < rows; row++) {
      counts x_now = x_at(x, row, step + i);
      UNROLL for (int v = 0; v < vectors; v++) {
        sum[row][v] = multiply_codes(sum[row][v], w_now[v], x_now);
      }
    }
  }
  return w;
}

/* The same from codes: four dwords of u8 out of each. */
static ALWAYS_INLINE const uint32_t *group_codes2(const struct micro_groups *groups, const struct x_rows *x,
                                                  int64_t step, const uint32_t *w, int rows, int vectors,
                                                  counts sum[][GROUPS_VECTORS]) {
  for (int i = 0; i < MICRO_GROUP / 16; i++, w += groups->width) {
    counts codes[GROUPS_VECTORS];
    UNROLL for (int v = 0; v < vectors; v++) {
      codes[v] = load_counts(w + v * LANES);
      if (v * LANES % 16 == 0) {
        __builtin_prefetch((const uint8_t *)(w + v * LANES) + PREFETCH_CODES2);
      }
    }
    UNROLL for (int part = 0; part < 4; part++) {
      counts w_now[GROUPS_VECTORS];
      UNROLL for (int v = 0; v < vectors; v++) {
        w_now[v] = (codes[v] >> 2 * part) & 0x03030303;
      }
      UNROLL for (int row = 0; row < rows; row++) {
        counts x_now = x_at(x, row, step + 4 * i + part);
        UNROLL for (int v = 0; v < vectors; v++) {
          sum[row][v] = multiply_codes(sum[row][v], w_now[v], x_now);
        }
      }
    }
  }
  return w;
}

static ALWAYS_INLINE lanes group_scale(const struct micro_groups *groups, bool packed, int group,
                                       const uint32_t *behind, int column, int v) {
  if (!packed) {
    return load_lanes(groups->column_scale + group * MICRO_WIDTH + column + v * LANES);
  }
  /* `behind` points to the columns' codes of a next word; the scales begin where all columns' would. */
  const uint16_t *scales = (const uint16_t *)(behind - column) + column + v * LANES;
  return load_halves(scales);
}

/* `parts` times `vectors` of columns beside each other, one part of a group after the other. */
static ALWAYS_INLINE void block_groups(const struct micro_groups *groups, int rows, int column, int vectors, int parts,
                                       bool packed) {
  const struct micro_tile shape = {.x = groups->x, .x_stride = groups->x_stride};
  struct x_rows x = x_rows(&shape);
  const uint32_t *w = (const uint32_t *)groups->w + column;
  const lanes none = {0};
  lanes total[MICRO_GROUPS_ROWS][GROUPS_PARTS * GROUPS_VECTORS];
  UNROLL for (int row = 0; row < rows; row++) {
    UNROLL for (int v = 0; v < parts * vectors; v++) {
      const float *before = groups->sums + row * MICRO_WIDTH + column + v * LANES;
      total[row][v] = groups->first ? none : load_lanes(before);
    }
  }
  for (int group = 0; group < groups->groups; group++) {
    const int32_t *start = groups->start + group * groups->start_stride;
    int64_t step = (int64_t)group * (MICRO_GROUP / 4);
    const uint32_t *behind = w;
    UNROLL for (int part = 0; part < parts; part++) {
      int first = part * vectors;
      counts sum[MICRO_GROUPS_ROWS][GROUPS_VECTORS];
      UNROLL for (int row = 0; row < rows; row++) {
        UNROLL for (int v = 0; v < vectors; v++) {
          sum[row][v] = group_begin(start[row]);
        }
      }
      behind = packed ? group_codes2(groups, &x, step, w + first * LANES, rows, vectors, sum)
                      : group_dwords(groups, &x, step, w + first * LANES, rows, vectors, sum);
      UNROLL for (int v = 0; v < vectors; v++) {
        lanes scale = group_scale(groups, packed, group, behind, column + first * LANES, v);
        UNROLL for (int row = 0; row < rows; row++) {
          total[row][first + v] = multiply_f32(total[row][first + v], group_end(sum[row][v], start[row]), scale);
        }
      }
    }
    w = behind - (parts - 1) * vectors * LANES + (packed ? groups->width / 2 : 0); /* the scales */
  }
  if (groups->finish != NULL) {
    const struct micro_finish finish = *groups->finish;
    UNROLL for (int row = 0; row < rows; row++) {
      UNROLL for (int part = 0; part < parts; part++) {
        finish_row(finish, row, column + part * vectors * LANES, vectors, &total[row][part * vectors]);
      }
    }
    return;
  }
  UNROLL for (int row = 0; row < rows; row++) {
    UNROLL for (int v = 0; v < parts * vectors; v++) {
      store_lanes(groups->sums + row * MICRO_WIDTH + column + v * LANES, total[row][v]);
    }
  }
}

#define GROUPS_CASE(rows_, vectors, packed)                                                                            \
  case rows_:                                                                                                          \
    block_groups(groups, rows_, column, vectors, 1, packed);                                                           \
    break;
#define GROUPS_CASES(vectors, packed)                                                                                  \
  switch (groups->rows) {                                                                                              \
    GROUPS_CASE(1, vectors, packed)                                                                                    \
    GROUPS_CASE(2, vectors, packed)                                                                                    \
    GROUPS_CASE(3, vectors, packed)                                                                                    \
    GROUPS_CASE(4, vectors, packed)                                                                                    \
    GROUPS_CASE(5, vectors, packed)                                                                                    \
    GROUPS_CASE(6, vectors, packed)                                                                                    \
  }
/* A whole panel of one row at a time reads W as one stream, and has sums enough to hide the latency. */
#define GROUPS(name, packed)                                                                                           \
  static void name(const struct micro_groups *groups) {                                                                \
    int column = 0;                                                                                                    \
    if (groups->rows == 1) {                                                                                           \
      for (; column + MICRO_WIDTH <= groups->width; column += MICRO_WIDTH) {                                           \
        block_groups(groups, 1, column, GROUPS_VECTORS, GROUPS_PARTS, packed);                                         \
      }                                                                                                                \
    }                                                                                                                  \
    for (; column + VECTORS * LANES <= groups->width; column += VECTORS * LANES) {                                     \
      GROUPS_CASES(VECTORS, packed)                                                                                    \
    }                                                                                                                  \
    for (; MICRO_VECTOR % (VECTORS * LANES) != 0 && column < groups->width; column += LANES) {                         \
      GROUPS_CASES(1, packed)                                                                                          \
    }                                                                                                                  \
  }
GROUPS(groups_dwords, false)
GROUPS(groups_codes2, true)

#endif
