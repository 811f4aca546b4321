#include "config.h"

#include "../../../../../proto/gemm.h"

#include <math.h>
#include <string.h>

static const int widths[] = {16, 32, 64, 128};
enum { WIDTHS = sizeof widths / sizeof *widths };

static bool multiplies_codes(enum int4_many_kind kind) {
  return kind == INT4_MANY_INT8 || kind == INT4_MANY_INT8_FINE;
}

/* Which of these; -1: none that there are kernels for. */
static int index_of(enum int4_many_kind kind, int columns) {
  for (int i = 0; i < WIDTHS; i++)
    if (widths[i] == columns && (kind != INT4_MANY_EXACT || columns == 64) &&
        (kind != INT4_MANY_INT8_FINE || columns < 128) && (!multiplies_codes(kind) || columns > 16))
      return i;
  return -1;
}

bool int4_many_plan_for(const struct int2_many_config *config, enum int4_many_kind kind, int64_t m, int64_t n,
                        int64_t k, int sms, struct int2_many_plan *out) {
  memset(out, 0, sizeof *out);
  if (index_of(kind, config->columns) < 0)
    return false;
  int unit = multiplies_codes(kind) ? 2 * GEMM_GROUP : GEMM_GROUP;
  return int2_many_cut(config, 64 * int4_many_groups(kind, config->columns), unit, m, n, k, sms, out);
}

/* Fitted to an H200, four large shapes' products with every width and split, 3 to 8 % off; what it picks is 0.3 % (INT8
 * 1.5 %) behind the best of these in the mean. */
double int4_many_us(const struct int2_many_config *config, enum int4_many_kind kind,
                    const struct int2_many_plan *plan) {
  static const struct int2_many_prices of[INT4_MANY_KINDS][WIDTHS] = {
      [INT4_MANY_INT8] = {{0},
                          {0.717, 2.5, 4.38, 1.56, 2.88},
                          {1.09, 2.5, 6.17, 1.66, 2.32},
                          {1.51, 2.5, 9.14, 0.826, 2.17}},
      [INT4_MANY_INT8_FINE] = {{0}, {1.37, 2.5, 2.3, 2.35, 3.05}, {1.9, 2.5, 4, 2.3, 2.6}},
      [INT4_MANY_SCALED] = {{0.53, 2.5, 4.2, 0.25, 0.9},
                            {0.627, 2.5, 3.49, 0.634, 0.817},
                            {0.855, 2.5, 6.44, 0.789, 1.29},
                            {1.32, 2.5, 13.9, 1.19, 2.23}},
      [INT4_MANY_SUMS] = {{0.56, 2.5, 4.2, 0.25, 0.9},
                          {0.648, 2.5, 3.2, 0.777, 0.841},
                          {0.895, 2.5, 3.68, 1.66, 1.25},
                          {1.37, 2.5, 13.9, 1.19, 2.23}},
      [INT4_MANY_EXACT] = {{0}, {0}, {0.895, 2.5, 3.68, 1.66, 1.25}},
  };
  return int2_many_priced(config, &of[kind][index_of(kind, config->columns)], plan);
}

bool int4_many_configure(enum int4_many_kind kind, int64_t m, int64_t n, int64_t k, int sms,
                         struct int2_many_config *out) {
  double least = INFINITY;
  for (int i = 0; i < WIDTHS && (widths[i] <= 64 || widths[i - 1] < m); i++)
    for (int split = 0; split <= INT2_MANY_SPLIT_MOST; split++) {
      struct int2_many_config config = {.columns = widths[i], .split_k = split, .group = 8};
      struct int2_many_plan plan;
      if (!int4_many_plan_for(&config, kind, m, n, k, sms, &plan) || int4_many_us(&config, kind, &plan) >= least)
        continue;
      least = int4_many_us(&config, kind, &plan);
      *out = config;
    }
  return least < INFINITY;
}
