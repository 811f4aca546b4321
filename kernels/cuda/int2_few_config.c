#include "int2_few_config.h"
#include "clusters.h"
#include "int2_layout.h"
#include "ranking.h"

#include <string.h>

/* SHARED_FIXED: what is not counted here. */
enum { SHARED_MOST = 227 * 1024, SHARED_FIXED = 2 * 1024, RING_BYTES = INT2_FEW_PAIRS * INT2_TILE_BYTES };

/* Bytes of a block's sums as int2_few.cuh keeps them: [columns][68] f32. */
static int slot_bytes(const struct int2_few_config *config) {
  return config->columns * (INT2_BLOCK_ROWS + 4) * 4;
}

bool int2_few_plan_for(const struct int2_few_config *config, int64_t n, int64_t k, struct int2_few_plan *out) {
  int64_t tiles = (k + GEMM_GROUP - 1) / GEMM_GROUP, row_blocks = (n + INT2_BLOCK_ROWS - 1) / INT2_BLOCK_ROWS;
  memset(out, 0, sizeof *out);
  if (!int2_cut_make(row_blocks, tiles, config->split_k, config->blocks, INT2_FEW_PAIRS, &out->cut))
    return false;
  int64_t longest = (tiles + config->split_k - 1) / config->split_k;
  /* x, and what sums start from, twice; see int2_few.cuh. */
  int64_t x_bytes = longest * config->columns * (2 * GEMM_GROUP + 8);
  out->x_bytes = (int)x_bytes;
  int64_t bytes =
      x_bytes + (config->ahead + 1) * RING_BYTES + (int64_t)INT2_FEW_PAIRS * out->cut.slots * slot_bytes(config);
  out->shared_bytes = (int)bytes;
  return bytes <= SHARED_MOST - SHARED_FIXED;
}

/* Thousands of clock cycles, fitted to an H200: what every block begins and ends with, reading x from L2, tiles of the
 * busiest pair of warps, joining the sums of a cluster, and writing y. A longer ring is worth a little where a block
 * lives long. */
static double cost(const struct int2_few_config *config, const struct int2_few_plan *plan, int sms) {
  int split = config->split_k, longest = ((int)plan->cut.tiles + split - 1) / split;
  int tiles = (config->blocks * longest + INT2_FEW_PAIRS - 1) / INT2_FEW_PAIRS;
  int fit = (int)clusters_usable(sms, split) / split, waves = ((int)plan->cut.clusters + fit - 1) / fit;
  bool wide = config->columns > 8;
  double x = longest * (wide ? 0.032 : 0.04), write = (wide ? 0.78 : 0.3) * config->blocks / split;
  double join = split == 1 ? 0 : split == 2 ? (wide ? 1.7 : 1) : split == 4 ? (wide ? 2.2 : 1.7) : wide ? 4.5 : 3.1;
  double cycles = waves * ((wide ? 5.8 : 3.6) + x + tiles * (wide ? 1.46 : 1.06) + join + write);
  return config->ahead == 2 ? cycles : cycles * (config->blocks > 8 && !wide ? 0.999 : 1.03);
}

int int2_few_candidates(int columns, int64_t n, int64_t k, int sms, struct int2_few_config *out, int most) {
  double ranks[INT2_FEW_CONFIGS];
  struct int2_few_plan plan;
  int count = 0;
  most = most < INT2_FEW_CONFIGS ? most : INT2_FEW_CONFIGS;
  for (int split = 1; split <= INT2_CUT_SPLIT_MOST; split *= 2)
    for (int blocks = 1; blocks <= INT2_CUT_BLOCKS_MOST; blocks++)
      for (int ahead = 2; ahead <= 3; ahead++) {
        struct int2_few_config config = {.columns = columns, .split_k = split, .blocks = blocks, .ahead = ahead};
        if (int2_few_plan_for(&config, n, k, &plan))
          count = ranking_insert(out, ranks, sizeof *out, count, most, &config, cost(&config, &plan, sms));
      }
  return count;
}

static bool way_find(int columns, int64_t n, int64_t k, int sms, struct int2_few_way *out) {
  return int2_few_candidates(columns, n, k, sms, &out->config, 1) == 1 &&
         int2_few_plan_for(&out->config, n, k, &out->plan);
}

bool int2_few_ways_find(int64_t n, int64_t k, int sms, struct int2_few_way out[INT2_FEW_WAYS]) {
  return way_find(8, n, k, sms, &out[0]) && way_find(16, n, k, sms, &out[1]);
}

int64_t int2_few_rows_most(enum gemm_type x_type) {
  return x_type == GEMM_F32 ? INT2_FEW_COLUMNS_MOST / 2 : INT2_FEW_COLUMNS_MOST;
}

int int2_few_columns(enum gemm_type x_type, int64_t m) {
  int64_t most = int2_few_rows_most(x_type), rows = m < most ? m : most;
  return (x_type == GEMM_F32 ? 2 * rows : rows) > INT2_FEW_COLUMNS_MOST / 2 ? INT2_FEW_COLUMNS_MOST
                                                                            : INT2_FEW_COLUMNS_MOST / 2;
}
