#include "config.h"
#include "../../../heuristics/clusters.h"
#include "../../../heuristics/ranking.h"
#include "../int2/layout.h"

#include <math.h>
#include <string.h>

/* SHARED_FIXED: what is not counted here. */
enum {
  SHARED_MOST = 227 * 1024,
  SHARED_FIXED = 2 * 1024,
};

/* Bytes of a block's sums as int2_few/kernel.cuh keeps them: [columns][68] f32. */
static int slot_bytes(const struct int2_few_config *config) {
  return config->columns * (INT2_BLOCK_ROWS + 4) * 4;
}

bool int2_few_plan_for(const struct int2_few_config *config, int64_t n, int64_t k, struct int2_few_plan *out) {
  int64_t tiles = (k + GEMM_GROUP - 1) / GEMM_GROUP, row_blocks = (n + INT2_BLOCK_ROWS - 1) / INT2_BLOCK_ROWS;
  memset(out, 0, sizeof *out);
  int halves = config->rows / INT2_FEW_ROWS;
  if (config->rows % INT2_FEW_ROWS != 0 ||
      !int2_cut_make(row_blocks, tiles, config->split_k, halves, INT2_FEW_WARPS, &out->cut))
    return false;
  int64_t longest = (tiles + config->split_k - 1) / config->split_k;
  /* x, and a multiplier, f32, for each group and column, of which lanes take two at a time; see int2_few/kernel.cuh. */
  int multipliers = config->columns < 2 ? 2 : config->columns;
  int64_t x_bytes = longest * (config->columns * INT2_FEW_X_BYTES + multipliers * 4);
  x_bytes = (int64_t)gemm_round_up((uint64_t)x_bytes, INT2_FEW_ALIGN);
  int64_t bytes = x_bytes + (int64_t)out->cut.slots * slot_bytes(config);
  if (bytes > SHARED_MOST - SHARED_FIXED)
    return false;
  int64_t stages = (SHARED_MOST - SHARED_FIXED - bytes) / INT2_FEW_STAGE_BYTES,
          most = (halves * longest + 2 * INT2_FEW_WARPS - 1) / (2 * INT2_FEW_WARPS);
  int stages_most = config->columns < INT2_FEW_COLUMNS_MOST ? INT2_FEW_STAGES_MOST - 1 : INT2_FEW_STAGES_MOST;
  most = most < INT2_FEW_STAGES_LEAST ? INT2_FEW_STAGES_LEAST : most > stages_most ? stages_most : most;
  out->columns = config->columns;
  stages = stages < most ? stages : most;
  out->ring_bytes = (int)stages * INT2_FEW_STAGE_BYTES;
  out->x_bytes = (int)x_bytes;
  out->shared_bytes = (int)(bytes + out->ring_bytes);
  return stages >= INT2_FEW_STAGES_LEAST;
}

/* What a wave of blocks has to do. */
struct wave {
  int blocks, stages; /* at a time; of a block's ring */
  int rounds;         /* tiles of the busiest warp */
  double tiles;       /* of a warp, in the mean */
};

/* Thousands of clock cycles until all tiles are multiplied: bounded by instructions, by memory, whose blocks share it,
 * and by how long a stage that is asked for anew takes to come. The root of their sixth powers' sum is the largest of
 * them, and a little more where two are close. */
static double products_cost(const struct wave *wave) {
  int anew = wave->rounds > wave->stages ? wave->rounds - wave->stages : 0;
  double instructions = 0.6185 * wave->rounds, memory = 0.00644 * wave->blocks * wave->tiles,
         latency = 2.73 * anew / wave->stages;
  return pow(pow(instructions, 6) + pow(memory, 6) + pow(latency, 6), 1 / 6.0);
}

/* Thousands of clock cycles, fitted to an H200: what every block begins and ends with, x on its way to shared memory,
 * products, joining the sums of a cluster, whose blocks wait for the slowest, and writing y. */
static double cost(const struct int2_few_config *config, const struct int2_few_plan *plan, int sms) {
  static const double joins[4] = {0, 0.974, 1.35, 2.234}; /* clusters of 1, 2, 4, 8 blocks */
  int split = config->split_k, columns = config->columns, longest = ((int)plan->cut.tiles + split - 1) / split;
  int halves = config->rows / INT2_FEW_ROWS, clusters = (int)plan->cut.clusters;
  int fit = (int)clusters_usable(sms, split) / split, full = (clusters - 1) / fit, last = clusters - full * fit;
  struct wave wave = {.stages = plan->ring_bytes / INT2_FEW_STAGE_BYTES,
                      .rounds = (halves * longest + 2 * INT2_FEW_WARPS - 1) / (2 * INT2_FEW_WARPS),
                      .tiles = halves * longest / (2.0 * INT2_FEW_WARPS)};
  double x = longest * (0.0062 + 0.0033 * columns), write = 0.0312 * columns * halves / split;
  double join = split > 1 ? joins[plan->cut.split_log2] + 0.0365 * wave.rounds : 0;
  double sum = (full + 1) * (4.228 + x + join + write);
  wave.blocks = last * split;
  sum += products_cost(&wave);
  wave.blocks = fit * split;
  return full > 0 ? sum + full * products_cost(&wave) : sum;
}

double int2_few_us(const struct int2_few_config *config, const struct int2_few_plan *plan, int sms) {
  return cost(config, plan, sms) / INT2_GHZ;
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

static const int widths[INT2_FEW_WAYS] = {1, 2, 4, 6, INT2_FEW_COLUMNS_MOST};

bool int2_few_ways_find(int64_t n, int64_t k, int sms, struct int2_few_way out[INT2_FEW_WAYS]) {
  for (int way = 0; way < INT2_FEW_WAYS; way++)
    if (int2_few_candidates(widths[way], n, k, sms, &out[way].config, 1) < 1 ||
        !int2_few_plan_for(&out[way].config, n, k, &out[way].plan))
      return false;
  return true;
}

bool int2_few_splits(enum gemm_type x_type, enum gemm_type y_type) {
  return x_type == GEMM_F32 || y_type == GEMM_F32;
}

int64_t int2_few_rows_most(enum gemm_type x_type, enum gemm_type y_type) {
  return int2_few_splits(x_type, y_type) ? INT2_FEW_COLUMNS_MOST / 2 : INT2_FEW_COLUMNS_MOST;
}

int int2_few_columns(enum gemm_type x_type, enum gemm_type y_type, int64_t m) {
  int64_t most = int2_few_rows_most(x_type, y_type), rows = m < most ? m : most;
  const int *width = widths;
  while (*width < (int2_few_splits(x_type, y_type) ? 2 * rows : rows))
    width++;
  return *width;
}
