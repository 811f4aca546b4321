#include "int2_few_config.h"
#include "clusters.h"
#include "int2_layout.h"
#include "ranking.h"

#include <string.h>

/* SHARED_FIXED: what is not counted here. */
enum {
  SHARED_MOST = 227 * 1024,
  SHARED_FIXED = 2 * 1024,
};

/* Bytes of a block's sums as int2_few.cuh keeps them: [columns][68] f32. */
static int slot_bytes(const struct int2_few_config *config) {
  return config->columns * (INT2_BLOCK_ROWS + 4) * 4;
}

bool int2_few_plan_for(const struct int2_few_config *config, int64_t n, int64_t k, struct int2_few_plan *out) {
  int64_t tiles = (k + GEMM_GROUP - 1) / GEMM_GROUP, row_blocks = (n + INT2_BLOCK_ROWS - 1) / INT2_BLOCK_ROWS;
  memset(out, 0, sizeof *out);
  int halves = config->rows / INT2_FEW_ROWS;
  if (config->rows % INT2_FEW_ROWS != 0 || (halves % 2 != 0 && config->columns > INT2_FEW_COLUMNS_HALVES) ||
      !int2_cut_make(row_blocks, tiles, config->split_k, halves, INT2_FEW_PAIRS, &out->cut))
    return false;
  int64_t longest = (tiles + config->split_k - 1) / config->split_k;
  /* x, and what sums start from; see int2_few.cuh. */
  int64_t x_bytes = longest * (config->columns * 2 * GEMM_GROUP + (config->columns + 7) / 8 * 64);
  x_bytes = (int64_t)gemm_round_up((uint64_t)x_bytes, INT2_FEW_ALIGN);
  int64_t bytes = x_bytes + (int64_t)INT2_FEW_PAIRS * out->cut.slots * slot_bytes(config);
  int64_t stages = (SHARED_MOST - SHARED_FIXED - bytes) / INT2_FEW_STAGE_BYTES,
          most = (halves * longest + 2 * INT2_FEW_PAIRS - 1) / (2 * INT2_FEW_PAIRS);
  most = most < INT2_FEW_STAGES_LEAST  ? INT2_FEW_STAGES_LEAST
         : most > INT2_FEW_STAGES_MOST ? INT2_FEW_STAGES_MOST
                                       : most;
  out->columns = config->columns;
  stages = stages < most ? stages : most;
  out->ring_bytes = (int)stages * INT2_FEW_STAGE_BYTES;
  out->x_bytes = (int)x_bytes;
  out->shared_bytes = (int)(bytes + out->ring_bytes);
  return bytes <= SHARED_MOST - SHARED_FIXED && stages >= INT2_FEW_STAGES_LEAST;
}

/* Thousands of clock cycles, fitted to an H200: what every block begins and ends with, reading x from L2, tiles of the
 * busiest pair of warps, joining the sums of a cluster, and writing y. */
static double cost(const struct int2_few_config *config, const struct int2_few_plan *plan, int sms) {
  static const double joins[2][4] = {{0, 1.007, 1.58, 2.94}, {0, 1.02, 1.63, 4.18}}; /* clusters of 1, 2, 4, 8 blocks */
  int split = config->split_k, columns = config->columns, longest = ((int)plan->cut.tiles + split - 1) / split;
  int halves = config->rows / INT2_FEW_ROWS, tiles = (halves * longest + 2 * INT2_FEW_PAIRS - 1) / (2 * INT2_FEW_PAIRS);
  int fit = (int)clusters_usable(sms, split) / split, waves = ((int)plan->cut.clusters + fit - 1) / fit;
  bool wide = columns > 8;
  double x = longest * (wide ? 0.073 : 0.011 + 0.0031 * columns);
  double write = (wide ? 0.438 : 0.012 + 0.036 * columns) * halves / split;
  return waves *
         ((wide ? 5.29 : 3.98) + x + tiles * (wide ? 1.384 : 0.993) + joins[wide][plan->cut.split_log2] + write);
}

int int2_few_candidates(int columns, int64_t n, int64_t k, int sms, struct int2_few_config *out, int most) {
  double ranks[INT2_FEW_CONFIGS];
  struct int2_few_plan plan;
  int count = 0;
  most = most < INT2_FEW_CONFIGS ? most : INT2_FEW_CONFIGS;
  for (int split = 1; split <= INT2_CUT_SPLIT_MOST; split *= 2)
    for (int rows = INT2_FEW_ROWS; rows <= INT2_CUT_BLOCKS_MOST * INT2_BLOCK_ROWS; rows += INT2_FEW_ROWS) {
      struct int2_few_config config = {.columns = columns, .split_k = split, .rows = rows};
      if (int2_few_plan_for(&config, n, k, &plan))
        count = ranking_insert(out, ranks, sizeof *out, count, most, &config, cost(&config, &plan, sms));
    }
  return count;
}

static bool way_find(int columns, int64_t n, int64_t k, int sms, struct int2_few_way *out) {
  const double cycles_per_ns = 1.73;
  if (int2_few_candidates(columns, n, k, sms, &out->config, 1) < 1 ||
      !int2_few_plan_for(&out->config, n, k, &out->plan))
    return false;
  out->us = cost(&out->config, &out->plan, sms) / cycles_per_ns;
  return true;
}

bool int2_few_ways_find(int64_t n, int64_t k, int sms, struct int2_few_way out[INT2_FEW_WAYS]) {
  for (int way = 0; way < INT2_FEW_WAYS; way++)
    if (!way_find(INT2_FEW_COLUMNS_LEAST << way, n, k, sms, &out[way]))
      return false;
  return true;
}

double int2_few_us(const struct int2_few_way ways[INT2_FEW_WAYS], int64_t m) {
  const double of_rows = 0.25; /* what of the time goes with the rows of x */
  return ways[INT2_FEW_WAYS - 1].us * (1 - of_rows + of_rows * (double)m / INT2_FEW_COLUMNS_MOST);
}

int64_t int2_few_rows_most(enum gemm_type x_type) {
  return x_type == GEMM_F32 ? INT2_FEW_COLUMNS_MOST / 2 : INT2_FEW_COLUMNS_MOST;
}

int int2_few_columns(enum gemm_type x_type, int64_t m) {
  int64_t most = int2_few_rows_most(x_type), rows = m < most ? m : most;
  int columns = INT2_FEW_COLUMNS_LEAST;
  while (columns < (x_type == GEMM_F32 ? 2 * rows : rows))
    columns *= 2;
  return columns;
}
