/* INT2A8: the exact sum of each group, scaled in registers. Text of micro_*.c, which define beside what micro_tile.h
 * wants
 *   load_halves            lanes (const void *from): as many f16
 * and where GROUP_SUMS, because a set has a faster way for codes up to 3 than multiply_integer,
 *   multiply_codes         counts (counts sum, counts w, counts x), from 0 on for the steps of one group
 *   group_sum              counts (counts sum): the s32 of these */
#ifndef KERNELS_CPU_MICRO_MICRO_GROUPS_H
#define KERNELS_CPU_MICRO_MICRO_GROUPS_H

#include "micro_tile.h"

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
  const lanes none = {0};
  lanes total[MICRO_GROUPS_ROWS][GROUPS_VECTORS];
  UNROLL for (int row = 0; row < rows; row++) {
    UNROLL for (int v = 0; v < vectors; v++) {
      const float *before = groups->sums + row * MICRO_WIDTH + column + v * LANES;
      total[row][v] = groups->first ? none : load_lanes(before);
    }
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
  if (groups->finish != NULL) {
    const struct micro_finish finish = *groups->finish;
    UNROLL for (int row = 0; row < rows; row++) {
      finish_row(finish, row, column, vectors, total[row]);
    }
    return;
  }
  UNROLL for (int row = 0; row < rows; row++) {
    UNROLL for (int v = 0; v < vectors; v++) {
      store_lanes(groups->sums + row * MICRO_WIDTH + column + v * LANES, total[row][v]);
    }
  }
}

#define GROUPS_CASE(rows_, vectors, packed)                                                                            \
  case rows_:                                                                                                          \
    block_groups(groups, rows_, column, vectors, packed);                                                              \
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
/* One row and group by group, all of a panel's columns before the next: W is then read as one stream. */
static ALWAYS_INLINE void one_row_groups(const struct micro_groups *groups, bool packed) {
  int64_t w_bytes = packed ? (MICRO_GROUP / 4 + 2) * MICRO_WIDTH : MICRO_GROUP * MICRO_WIDTH;
  for (int group = 0; group < groups->groups; group++) {
    struct micro_groups one = *groups;
    one.groups = 1;
    one.x += group * (MICRO_GROUP / 4);
    one.w = (const uint8_t *)groups->w + group * w_bytes;
    one.column_scale = packed ? NULL : groups->column_scale + group * MICRO_WIDTH;
    one.start += group * groups->start_stride;
    one.first = groups->first && group == 0;
    one.finish = group + 1 == groups->groups ? groups->finish : NULL;
    for (int column = 0; column < MICRO_WIDTH; column += GROUPS_VECTORS * LANES) {
      block_groups(&one, 1, column, GROUPS_VECTORS, packed);
    }
  }
}

/* A whole panel of one row has sums enough to hide the latency. */
#define GROUPS(name, packed)                                                                                           \
  static void name(const struct micro_groups *groups) {                                                                \
    int column = 0;                                                                                                    \
    if (groups->rows == 1 && groups->width == MICRO_WIDTH) {                                                           \
      if (GROUPS_VECTORS * LANES == MICRO_WIDTH) {                                                                     \
        block_groups(groups, 1, 0, GROUPS_VECTORS, packed);                                                            \
      } else {                                                                                                         \
        one_row_groups(groups, packed);                                                                                \
      }                                                                                                                \
      return;                                                                                                          \
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
