/* What tiles share whose sums are scaled by group in registers (struct micro_groups): where their totals begin and end,
 * and a function for each size of one. Text of each micro_*.c. */
#pragma once

#include "micro_tile.h"

static ALWAYS_INLINE void begin_totals(const struct micro_groups *groups, int row, int column, int vectors,
                                       lanes total[]) {
  const lanes none = {0};
  const float *before = groups->sums + row * MICRO_WIDTH + column;
  UNROLL for (int v = 0; v < vectors; v++) {
    total[v] = none;
  }
  if (!groups->first) {
    UNROLL for (int v = 0; v < vectors; v++) {
      total[v] = load_lanes(before + v * LANES);
    }
  }
}

static ONCE void end_totals(const struct micro_groups *groups, int rows, int column, int vectors, const lanes *total,
                            int stride) {
  if (groups->finish != NULL) {
    finish_rows(groups->finish, rows, column, vectors, total, stride);
    return;
  }
  for (int row = 0; row < rows; row++, total += stride) {
    for (int v = 0; v < vectors; v++) {
      store_lanes(groups->sums + row * MICRO_WIDTH + column + v * LANES, total[v]);
    }
  }
}

/* One row and group by group, all of a panel's columns before the next: W is then read as one stream. */
static ALWAYS_INLINE struct micro_groups one_group(const struct micro_groups *groups, int group, int64_t w_bytes,
                                                   int steps) {
  struct micro_groups one = *groups;
  one.groups = 1;
  one.x += group * steps;
  one.w = (const uint8_t *)groups->w + group * w_bytes;
  one.start += group * groups->start_stride;
  one.first = groups->first && group == 0;
  one.finish = group + 1 == groups->groups ? groups->finish : NULL;
  return one;
}

#define GROUP_FUNCTION(name, block, rows_, vectors_)                                                                   \
  static ONCE void name##_##rows_##x##vectors_(const struct micro_groups *groups, int column) {                        \
    block(groups, rows_, column, vectors_);                                                                            \
  }
#define GROUP_CASE(name, block, rows_, vectors_)                                                                       \
  case rows_:                                                                                                          \
    name##_##rows_##x##vectors_(groups, column);                                                                       \
    break;
/* All columns by blocks of two vectors, and of one where panels may end with it. */
#define GROUP_COLUMNS(name, block)                                                                                     \
  ROWS_6(GROUP_FUNCTION, name, block, 2)                                                                               \
  ROWS_6(GROUP_FUNCTION, name, block, 1)                                                                               \
  static void name##_columns(const struct micro_groups *groups) {                                                      \
    int column = 0;                                                                                                    \
    for (; column + 2 * LANES <= groups->width; column += 2 * LANES) {                                                 \
      switch (groups->rows) { ROWS_6(GROUP_CASE, name, block, 2) }                                                     \
    }                                                                                                                  \
    for (; MICRO_VECTOR % (2 * LANES) != 0 && column < groups->width; column += LANES) {                               \
      switch (groups->rows) { ROWS_6(GROUP_CASE, name, block, 1) }                                                     \
    }                                                                                                                  \
  }
