/* INT2A8: the exact sum of each group, scaled in registers. Text of micro_*.c, which define beside what micro_tile.h
 * wants
 *   load_halves            lanes (const void *from): as many f16
 * and where GROUP_SUMS, because a set has a faster way for codes up to 3 than multiply_integer,
 *   multiply_codes         counts (counts sum, counts w, counts x), from 0 on for the steps of one group
 *   group_sum              counts (counts sum): the s32 of these */
#pragma once

#include "micro_totals.h"

#define GROUPS_VECTORS 4
#define PREFETCH_CODES2 4096

static ALWAYS_INLINE int32_t start_of(const struct micro_groups *groups, int group, int row) {
  return groups->start[group * groups->start_stride + row];
}

#ifdef GROUP_SUMS
static ALWAYS_INLINE counts group_begin(const struct micro_groups *groups, int group, int row) {
  (void)groups, (void)group, (void)row;
  return (counts){0};
}

static ALWAYS_INLINE lanes group_end(const struct micro_groups *groups, int group, int row, counts sum) {
  return __builtin_convertvector(group_sum(sum) + start_of(groups, group, row), lanes);
}
#else
#define multiply_codes multiply_integer
static ALWAYS_INLINE counts group_begin(const struct micro_groups *groups, int group, int row) {
  return broadcast((uint32_t)start_of(groups, group, row));
}

static ALWAYS_INLINE lanes group_end(const struct micro_groups *groups, int group, int row, counts sum) {
  (void)groups, (void)group, (void)row;
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

static ALWAYS_INLINE void block_groups(const struct micro_groups *groups, int rows, int column, int vectors,
                                       bool packed) {
  const struct micro_tile shape = {.x = groups->x, .x_stride = groups->x_stride};
  struct x_rows x = x_rows(&shape);
  const uint32_t *w = (const uint32_t *)groups->w + column;
  lanes total[MICRO_GROUPS_ROWS][GROUPS_VECTORS];
  UNROLL for (int row = 0; row < rows; row++) {
    begin_totals(groups, row, column, vectors, total[row]);
  }
  for (int group = 0; group < groups->groups; group++) {
    counts sum[MICRO_GROUPS_ROWS][GROUPS_VECTORS];
    UNROLL for (int row = 0; row < rows; row++) {
      UNROLL for (int v = 0; v < vectors; v++) {
        sum[row][v] = group_begin(groups, group, row);
      }
    }
    int64_t step = (int64_t)group * (MICRO_GROUP / 4);
    w = packed ? group_codes2(groups, &x, step, w, rows, vectors, sum)
               : group_dwords(groups, &x, step, w, rows, vectors, sum);
    UNROLL for (int v = 0; v < vectors; v++) {
      lanes scale = group_scale(groups, packed, group, w, column, v);
      UNROLL for (int row = 0; row < rows; row++) {
        total[row][v] = multiply_f32(total[row][v], group_end(groups, group, row, sum[row][v]), scale);
      }
    }
    w += packed ? groups->width / 2 : 0; /* the scales */
  }
  lanes values[MICRO_GROUPS_ROWS][GROUPS_VECTORS];
  UNROLL for (int row = 0; row < rows; row++) {
    UNROLL for (int v = 0; v < vectors; v++) {
      values[row][v] = total[row][v];
    }
  }
  end_totals(groups, rows, column, vectors, values[0], GROUPS_VECTORS);
}

static ALWAYS_INLINE void block_dwords(const struct micro_groups *groups, int rows, int column, int vectors) {
  block_groups(groups, rows, column, vectors, false);
}

static ALWAYS_INLINE void block_codes2(const struct micro_groups *groups, int rows, int column, int vectors) {
  block_groups(groups, rows, column, vectors, true);
}

/* A whole panel of one row has sums enough to hide the latency. */
#define GROUPS(name, block, packed)                                                                                    \
  GROUP_COLUMNS(name, block)                                                                                           \
  GROUP_FUNCTION(name, block, 1, 4)                                                                                    \
  static void name(const struct micro_groups *groups) {                                                                \
    if (groups->rows != 1 || groups->width != MICRO_WIDTH) {                                                           \
      name##_columns(groups);                                                                                          \
      return;                                                                                                          \
    }                                                                                                                  \
    if (GROUPS_VECTORS * LANES == MICRO_WIDTH) {                                                                       \
      name##_1x4(groups, 0);                                                                                           \
      return;                                                                                                          \
    }                                                                                                                  \
    int64_t w_bytes = packed ? (MICRO_GROUP / 4 + 2) * MICRO_WIDTH : MICRO_GROUP * MICRO_WIDTH;                        \
    for (int group = 0; group < groups->groups; group++) {                                                             \
      struct micro_groups one = one_group(groups, group, w_bytes, MICRO_GROUP / 4);                                    \
      one.column_scale = packed ? NULL : groups->column_scale + group * MICRO_WIDTH;                                   \
      for (int column = 0; column < MICRO_WIDTH; column += GROUPS_VECTORS * LANES) {                                   \
        name##_1x4(&one, column);                                                                                      \
      }                                                                                                                \
    }                                                                                                                  \
  }
GROUPS(groups_dwords, block_dwords, false)
GROUPS(groups_codes2, block_codes2, true)
