#include "config.h"
#include "../../../heuristics/clusters.h"
#include "../../../heuristics/ranking.h"

#include <math.h>
#include <string.h>

/* SHARED_FIXED: what is not counted here. */
/* SHARED_ALONE: with which a block has a multiprocessor by itself. Where two find room the next launch's, which start
 * early, come to be two on some and none on others. */
enum { SHARED_ALONE = 114 * 1024, SHARED_MOST = 227 * 1024, SHARED_FIXED = 4 * 1024 };

int int4_few_stage_bytes(const struct int4_form *form) {
  int bytes = INT4_FEW_WARPS * form->half_bytes + 8 * (1 + INT4_FEW_SUPPLIERS);
  return (bytes + INT4_FEW_ALIGN - 1) / INT4_FEW_ALIGN * INT4_FEW_ALIGN;
}

/* Bytes of a block's sums as int4_few/kernel.cuh keeps them: [columns][36] f32. */
static int slot_bytes(const struct int4_few_config *config) {
  return config->columns * (INT4_HALF_ROWS + 4) * 4;
}

bool int4_few_plan_for(const struct int4_few_config *config, const struct int4_form *form, int64_t n, int64_t k,
                       struct int4_few_plan *out) {
  int64_t tiles = (k + GEMM_GROUP - 1) / GEMM_GROUP,
          row_blocks = (n + INT4_BLOCK_ROWS - 1) / INT4_BLOCK_ROWS * (INT4_BLOCK_ROWS / INT4_HALF_ROWS);
  memset(out, 0, sizeof *out);
  int blocks = config->rows / INT4_FEW_ROWS;
  if (config->rows % INT4_FEW_ROWS != 0 || config->columns > INT4_FEW_COLUMNS_MOST ||
      !int2_cut_make(row_blocks, tiles, config->split_k, 2 * blocks, INT4_FEW_WARPS, &out->cut))
    return false;
  int64_t longest = (tiles + config->split_k - 1) / config->split_k;
  int64_t x_bytes = config->columns * (longest * GEMM_GROUP * 2 + INT4_FEW_X_PAD);
  x_bytes = (int64_t)gemm_round_up((uint64_t)x_bytes, INT4_FEW_ALIGN);
  int64_t bytes = x_bytes + (int64_t)out->cut.slots * slot_bytes(config);
  int stage = int4_few_stage_bytes(form);
  int64_t stages = (SHARED_MOST - SHARED_FIXED - bytes) / stage,
          most = (blocks * longest + INT4_FEW_WARPS - 1) / INT4_FEW_WARPS;
  most = most < INT4_FEW_STAGES_LEAST  ? INT4_FEW_STAGES_LEAST
         : most > INT4_FEW_STAGES_MOST ? INT4_FEW_STAGES_MOST
                                       : most;
  out->columns = config->columns;
  stages = stages < most ? stages : most;
  out->ring_bytes = (int)stages * stage;
  out->x_bytes = (int)x_bytes;
  out->shared_bytes = (int)(bytes + out->ring_bytes);
  if (out->shared_bytes < SHARED_ALONE)
    out->shared_bytes = SHARED_ALONE;
  return bytes <= SHARED_MOST - SHARED_FIXED && stages >= INT4_FEW_STAGES_LEAST;
}

/* What a wave of blocks has to do. */
struct wave {
  int blocks, stages; /* at a time; of a block's ring */
  int rounds;         /* half tiles of the busiest warp */
  double tiles;       /* of a warp, in the mean */
};

/* Thousands of clock cycles until all tiles are multiplied: bounded by instructions, by memory, whose blocks share it,
 * and by how long a stage that is asked for anew takes to come. The root of their sixth powers' sum is the largest of
 * them, and a little more where two are close. */
static double products_cost(const struct wave *wave, int columns, const struct int4_form *form) {
  int anew = wave->rounds > wave->stages ? wave->rounds - wave->stages : 0;
  double instructions = (columns <= 8 ? 0.392 : 0.72) * (form->e2m1 ? 1.7 : 1) * wave->rounds,
         memory = 0.00705 / 2112 * form->half_bytes * wave->blocks * wave->tiles, latency = 2.92 * anew / wave->stages;
  return pow(pow(instructions, 6) + pow(memory, 6) + pow(latency, 6), 1 / 6.0);
}

/* Thousands of clock cycles, fitted to an H200: what every block begins and ends with, x on its way to shared memory,
 * products, joining the sums of a cluster, whose blocks wait for the slowest, and writing y. */
static double cost(const struct int4_few_config *config, const struct int4_form *form, const struct int4_few_plan *plan,
                   int sms) {
  static const double joins[4] = {0, 1.565, 1.865, 2.811}; /* clusters of 1, 2, 4, 8 blocks */
  int split = config->split_k, columns = config->columns, longest = ((int)plan->cut.tiles + split - 1) / split;
  int blocks = config->rows / INT4_FEW_ROWS, clusters = (int)plan->cut.clusters;
  int fit = (int)clusters_usable(sms, split) / split, full = (clusters - 1) / fit, last = clusters - full * fit;
  struct wave wave = {.stages = plan->ring_bytes / int4_few_stage_bytes(form),
                      .rounds = (blocks * longest + INT4_FEW_WARPS - 1) / INT4_FEW_WARPS,
                      .tiles = (double)blocks * longest / INT4_FEW_WARPS};
  double x = longest * (0.0134 + 0.0137 * columns), write = 0.1155 * columns * blocks / split;
  double sum = (full + 1) * (5.124 + x + joins[plan->cut.split_log2] + write);
  wave.blocks = last * split;
  sum += products_cost(&wave, columns, form);
  wave.blocks = fit * split;
  return full > 0 ? sum + full * products_cost(&wave, columns, form) : sum;
}

double int4_few_us(const struct int4_few_config *config, const struct int4_form *form, const struct int4_few_plan *plan,
                   int sms) {
  return cost(config, form, plan, sms) / INT2_GHZ;
}

int int4_few_candidates(int columns, const struct int4_form *form, int64_t n, int64_t k, int sms,
                        struct int4_few_config *out, int most) {
  double ranks[INT4_FEW_CONFIGS];
  struct int4_few_plan plan;
  int count = 0;
  most = most < INT4_FEW_CONFIGS ? most : INT4_FEW_CONFIGS;
  for (int split = 1; split <= INT2_CUT_SPLIT_MOST; split *= 2)
    for (int blocks = 1; blocks <= INT2_CUT_BLOCKS_MOST; blocks++) {
      struct int4_few_config config = {.columns = columns, .split_k = split, .rows = blocks * INT4_FEW_ROWS};
      if (int4_few_plan_for(&config, form, n, k, &plan))
        count = ranking_insert(out, ranks, sizeof *out, count, most, &config, cost(&config, form, &plan, sms));
    }
  return count;
}

bool int4_few_ways_find(const struct int4_form *form, int64_t n, int64_t k, int sms,
                        struct int4_few_way out[INT4_FEW_WAYS]) {
  for (int way = 0; way < INT4_FEW_WAYS; way++) {
    struct int4_few_config *config = &out[way].config;
    if (int4_few_candidates(1 << way, form, n, k, sms, config, 1) == 1 &&
        int4_few_plan_for(config, form, n, k, &out[way].plan))
      continue;
    config->columns = 0;
    if (1 << way <= 8)
      return false;
  }
  return true;
}

int int4_few_columns_a_row(enum gemm_type x_type) {
  return x_type == GEMM_F32 ? 2 : 1;
}

int int4_few_columns(const struct int4_few_way ways[INT4_FEW_WAYS], enum gemm_type x_type, int64_t m) {
  int64_t wanted = m * int4_few_columns_a_row(x_type);
  int columns = 0;
  for (int way = 0; way < INT4_FEW_WAYS && columns < wanted; way++)
    columns = ways[way].config.columns > columns ? ways[way].config.columns : columns;
  return columns;
}
