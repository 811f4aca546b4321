#include "config.h"
#include "../../../heuristics/clusters.h"
#include "../../../heuristics/ranking.h"

#include <math.h>
#include <string.h>

#define GHZ 1.98 /* of the H200 that the cost model was fitted to: thousands of cycles a microsecond */

/* SHARED_FIXED: what is not counted here. */
/* SHARED_ALONE: with which a block has a multiprocessor by itself. Where two find room the next launch's, which start
 * early, come to be two on some and none on others. */
enum { SHARED_ALONE = 114 * 1024, SHARED_MOST = 227 * 1024, SHARED_FIXED = 1024 };

/* Stages of the ring: with more, x is longer on its way, which pays where a block takes few in all or many. What is
 * fetched into the L2 behind them keeps memory busy until x is there. NOTES.md has what was measured. */
enum { STAGES_USUAL = 4, ROUNDS_SHORT = 8, ROUNDS_FAIR = 16, ROUNDS_LONG = 48 };

int int4_few_stage_bytes(const struct int4_form *form) {
  return INT4_FEW_TOGETHER * 2 * form->half_bytes;
}

bool int4_few_plan_for(const struct int4_few_config *config, const struct int4_form *form, int64_t n, int64_t k,
                       struct int4_few_plan *out) {
  int64_t tiles = (k + GEMM_GROUP - 1) / GEMM_GROUP, stages = (tiles + INT4_FEW_TOGETHER - 1) / INT4_FEW_TOGETHER;
  int split = config->split_k, blocks = config->rows / INT4_FEW_ROWS;
  memset(out, 0, sizeof *out);
  if (config->rows % INT4_FEW_ROWS != 0 || blocks < 1 || blocks > INT4_FEW_BLOCKS_MOST ||
      config->columns > INT4_FEW_COLUMNS_MOST || split < 1 || split > INT4_FEW_SPLIT_MOST || (split & (split - 1)) ||
      split > stages || k > INT4_FEW_K_MOST)
    return false;
  out->tiles = (uint32_t)tiles, out->stages = (uint32_t)stages;
  out->row_blocks = (uint32_t)((n + INT4_FEW_ROWS - 1) / INT4_FEW_ROWS);
  out->blocks = (uint32_t)blocks, out->split_log2 = (uint32_t)__builtin_ctz((unsigned)split);
  out->clusters = (out->row_blocks + out->blocks - 1) / out->blocks;
  out->columns = config->columns;
  int64_t longest = (stages + split - 1) / split;
  int64_t x_bytes = config->columns * (longest * INT4_FEW_TOGETHER * GEMM_GROUP * 2 + INT4_FEW_X_PAD);
  x_bytes = (int64_t)gemm_round_up((uint64_t)x_bytes, INT4_FEW_ALIGN);
  int64_t bytes = x_bytes + 2 * INT4_FEW_TOGETHER * config->columns * INT4_FEW_PITCH * 4 +
                  (split > 1 ? ((int64_t)blocks * config->columns + split - 1) * INT4_FEW_ROWS * 4 : 0);
  int stage = int4_few_stage_bytes(form);
  int64_t room = (SHARED_MOST - SHARED_FIXED - bytes) / stage, rounds = blocks * longest,
          most = !form->e2m1 && (rounds >= ROUNDS_LONG || (split == 1 && rounds <= ROUNDS_SHORT)) ? INT4_FEW_STAGES_MOST
                                                                                                  : STAGES_USUAL;
  most = rounds + 1 < most ? rounds + 1 : most;
  room = room < most ? room : most;
  out->ring_bytes = (int)room * stage;
  out->x_bytes = (int)x_bytes;
  out->piece_log2 = config->columns >= 4 ? 0 : config->columns == 2 ? 1 : 2; /* a copy for each thread */
  while ((longest - 1) >> out->piece_log2 >= INT4_FEW_X_PIECES)
    out->piece_log2++;
  if (!form->e2m1 && rounds >= ROUNDS_FAIR && (rounds >= ROUNDS_LONG || config->columns >= 4))
    out->ahead_bytes = (uint32_t)(stage * (rounds >= ROUNDS_LONG ? 4 : 2));
  out->shared_bytes = (int)(bytes + out->ring_bytes);
  if (out->shared_bytes < SHARED_ALONE)
    out->shared_bytes = SHARED_ALONE;
  return bytes <= SHARED_MOST - SHARED_FIXED && room >= INT4_FEW_STAGES_LEAST;
}

/* Thousands of clock cycles until all tiles are multiplied: bounded by instructions, by memory, whose blocks share it,
 * and by how long a stage that is asked for anew takes to come. The root of their fifth powers' sum is the largest of
 * them, and a little more where two are close. */
static double products_cost(int blocks, int rounds, int stages, int columns, const struct int4_form *form) {
  int anew = rounds > stages ? rounds - stages : 0;
  double instructions = (columns <= 8 ? 0.554 : 0.836) *
                        (!form->e2m1    ? 1
                         : columns <= 8 ? 1.555
                                        : 1.344) *
                        rounds,
         memory = 0.00728 / 2112 * form->half_bytes * blocks * rounds, latency = 2.349 * anew / stages;
  return pow(pow(instructions, 5) + pow(memory, 5) + pow(latency, 5), 1 / 5.0);
}

/* Thousands of clock cycles, fitted to an H200: what every block begins and ends with, x on its way to shared memory,
 * products, joining the sums of a cluster, whose blocks wait for the slowest, and writing y. */
static double cost(const struct int4_few_config *config, const struct int4_form *form, const struct int4_few_plan *plan,
                   int sms) {
  static const double joins[4] = {0, 0.463, 0.806, 1.439}; /* clusters of 1, 2, 4, 8 blocks */
  int split = config->split_k, columns = config->columns, longest = ((int)plan->stages + split - 1) / split;
  int blocks = (int)plan->blocks, clusters = (int)plan->clusters, rounds = blocks * longest;
  int fit = (int)clusters_usable(sms, split) / split, full = (clusters - 1) / fit, last = clusters - full * fit;
  int stages = plan->ring_bytes / int4_few_stage_bytes(form);
  double x = longest * INT4_FEW_TOGETHER * 0.00574 * columns, write = 0.162 * columns * blocks / split;
  double sum = (full + 1) * (4.879 + x + joins[plan->split_log2] + write);
  sum += products_cost(last * split, rounds, stages, columns, form);
  return full > 0 ? sum + full * products_cost(fit * split, rounds, stages, columns, form) : sum;
}

double int4_few_us(const struct int4_few_config *config, const struct int4_form *form, const struct int4_few_plan *plan,
                   int sms) {
  return cost(config, form, plan, sms) / GHZ;
}

int int4_few_candidates(int columns, const struct int4_form *form, int64_t n, int64_t k, int sms,
                        struct int4_few_config *out, int most) {
  double ranks[INT4_FEW_CONFIGS];
  struct int4_few_plan plan;
  int count = 0;
  most = most < INT4_FEW_CONFIGS ? most : INT4_FEW_CONFIGS;
  for (int split = 1; split <= INT4_FEW_SPLIT_MOST; split *= 2)
    for (int blocks = 1; blocks <= INT4_FEW_BLOCKS_MOST; blocks++) {
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
