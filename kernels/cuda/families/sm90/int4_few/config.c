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

/* Stages that a block takes in all, by which those of the ring are chosen, and how many behind them are fetched into
 * the L2 at the start, which keeps memory busy until x is there. With more, x is longer on its way. NOTES.md has what
 * was measured. */
enum { ROUNDS_SHORT = 4, ROUNDS_FAIR = 13, ROUNDS_LONG = 48, ROUNDS_LONGEST = 96 };

int int4_few_stage_bytes(const struct int4_form *form) {
  return INT4_FEW_TOGETHER * 2 * form->half_bytes;
}

/* Stages of the ring at most. */
static int ring_most(const struct int4_form *form, int columns, int64_t rounds) {
  enum { USUAL = 4 };
  if (rounds < USUAL)
    return (int)rounds + 1;
  if (form->e2m1)
    return USUAL;
  if (rounds >= ROUNDS_LONG)
    return INT4_FEW_STAGES_MOST;
  bool more = rounds >= ROUNDS_FAIR && (columns == 2 || columns == 4);
  return rounds <= ROUNDS_SHORT ? USUAL - 1 : more ? USUAL + 1 : USUAL;
}

bool int4_few_plan_for(const struct int4_few_config *config, const struct int4_form *form, int64_t n, int64_t k,
                       struct int4_few_plan *out) {
  int64_t tiles = (k + GEMM_GROUP - 1) / GEMM_GROUP, stages = (tiles + INT4_FEW_TOGETHER - 1) / INT4_FEW_TOGETHER;
  int split = config->split_k, blocks = (config->rows + INT4_FEW_ROWS - 1) / INT4_FEW_ROWS;
  memset(out, 0, sizeof *out);
  if (config->rows % INT4_FEW_ROWS_STEP != 0 || config->rows < INT4_FEW_ROWS || blocks > INT4_FEW_BLOCKS_MOST ||
      config->columns > INT4_FEW_COLUMNS_MOST || split < 1 || split > INT4_FEW_SPLIT_MOST || (split & (split - 1)) ||
      split > stages || k > INT4_FEW_K_MOST)
    return false;
  out->tiles = (uint32_t)tiles, out->stages = (uint32_t)stages;
  out->row_blocks = (uint32_t)((n + INT4_FEW_ROWS - 1) / INT4_FEW_ROWS);
  out->rows = (uint32_t)config->rows, out->split_log2 = (uint32_t)__builtin_ctz((unsigned)split);
  out->clusters = (out->row_blocks * INT4_FEW_ROWS + out->rows - 1) / out->rows;
  if (config->rows % INT4_FEW_ROWS != 0 && out->clusters * (uint32_t)split > INT4_FEW_SHARING_MOST)
    return false;
  out->columns = config->columns;
  int64_t longest = (stages + split - 1) / split;
  int64_t x_bytes = config->columns * (longest * INT4_FEW_TOGETHER * GEMM_GROUP * 2 + INT4_FEW_X_PAD);
  x_bytes = (int64_t)gemm_round_up((uint64_t)x_bytes, INT4_FEW_ALIGN);
  int64_t bytes = x_bytes + 2 * INT4_FEW_TOGETHER * config->columns * INT4_FEW_PITCH * 4 +
                  (split > 1 ? ((int64_t)blocks * config->columns + split - 1) * INT4_FEW_ROWS * 4 : 0);
  int stage = int4_few_stage_bytes(form);
  int64_t room = (SHARED_MOST - SHARED_FIXED - bytes) / stage,
          rounds = (config->rows * longest + INT4_FEW_ROWS - 1) / INT4_FEW_ROWS;
  int most = ring_most(form, config->columns, rounds);
  room = room < most ? room : most;
  out->ring_bytes = (int)room * stage;
  out->x_bytes = (int)x_bytes;
  out->piece_log2 = config->columns >= 4 ? 0 : config->columns == 2 ? 1 : 2; /* a copy for each thread */
  while ((longest - 1) >> out->piece_log2 >= INT4_FEW_X_PIECES)
    out->piece_log2++;
  if (!form->e2m1 && rounds >= ROUNDS_FAIR)
    out->ahead_bytes = (uint32_t)(stage * (rounds >= ROUNDS_LONGEST ? 8 : rounds >= ROUNDS_LONG ? 4 : 2));
  out->shared_bytes = (int)(bytes + out->ring_bytes);
  if (out->shared_bytes < SHARED_ALONE)
    out->shared_bytes = SHARED_ALONE;
  return bytes <= SHARED_MOST - SHARED_FIXED && room >= INT4_FEW_STAGES_LEAST;
}

/* Thousands of clock cycles until all tiles are multiplied: bounded by instructions, by memory, whose blocks share it,
 * and by how long a stage that is asked for anew takes to come. The root of their fifth powers' sum is the largest of
 * them, and a little more where two are close. */
static double products_cost(int blocks, double rounds, int stages, int columns, const struct int4_form *form) {
  static const double by_form[3][2] = {{1, 1}, {1.424, 1.166}, {1.95, 1.538}}; /* INT4, MXFP4, NVFP4 */
  int which = !form->e2m1 ? 0 : form->groups == INT4_GROUPS_MOST ? 2 : 1, wide = columns > 8;
  double anew = rounds > stages ? rounds - stages : 0, latency = 1.777 * anew / stages;
  double instructions = (wide ? 0.907 : 0.606) * by_form[which][wide] * rounds;
  double memory = 0.00679 / 2112 * form->half_bytes * blocks * rounds;
  return pow(pow(instructions, 5) + pow(memory, 5) + pow(latency, 5), 1 / 5.0);
}

/* Thousands of clock cycles, fitted to an H200: what every block begins and ends with, x on its way to shared memory,
 * products, joining the sums of a cluster, whose blocks wait for the slowest, and writing y. */
static double cost(const struct int4_few_config *config, const struct int4_form *form, const struct int4_few_plan *plan,
                   int sms) {
  /* Of clusters of 1, 2, 4, 8 blocks, and for each column. */
  static const double joins[4] = {0, 0.896, 1.361, 2.204}, join_columns[4] = {0, 0.0135, 0.0732, 0.16};
  int split = config->split_k, columns = config->columns, longest = ((int)plan->stages + split - 1) / split;
  int clusters = (int)plan->clusters;
  int fit = (int)clusters_usable(sms, split) / split, full = (clusters - 1) / fit, last = clusters - full * fit;
  int stages = plan->ring_bytes / int4_few_stage_bytes(form);
  double blocks = plan->rows / (double)INT4_FEW_ROWS, rounds = blocks * longest;
  double x = longest * INT4_FEW_TOGETHER * 0.00773 * columns, write = 0.121 * columns * blocks / split;
  double join = joins[plan->split_log2] + join_columns[plan->split_log2] * columns;
  double sum = (full + 1) * (5.284 + x + join + write);
  sum += products_cost(last * split, rounds, stages, columns, form);
  return full > 0 ? sum + full * products_cost(fit * split, rounds, stages, columns, form) : sum;
}

double int4_few_us(const struct int4_few_config *config, const struct int4_form *form, const struct int4_few_plan *plan,
                   int sms) {
  return cost(config, form, plan, sms) / GHZ;
}

/* With which clusters of so many blocks, as many as a device of `sms` multiprocessors runs, have even shares. */
static int even_rows(int64_t n, int split, int sms) {
  int64_t blocks = (n + INT4_FEW_ROWS - 1) / INT4_FEW_ROWS, clusters = (int64_t)clusters_usable(sms, split) / split;
  int64_t rows = (blocks * INT4_FEW_ROWS + clusters - 1) / clusters;
  rows = (rows + INT4_FEW_ROWS_STEP - 1) / INT4_FEW_ROWS_STEP * INT4_FEW_ROWS_STEP;
  return rows <= INT4_FEW_BLOCKS_MOST * INT4_FEW_ROWS ? (int)rows : INT4_FEW_BLOCKS_MOST * INT4_FEW_ROWS;
}

int int4_few_candidates(int columns, const struct int4_form *form, int64_t n, int64_t k, int sms,
                        struct int4_few_config *out, int most) {
  double ranks[INT4_FEW_CONFIGS];
  struct int4_few_plan plan;
  int count = 0;
  most = most < INT4_FEW_CONFIGS ? most : INT4_FEW_CONFIGS;
  for (int split = 1; split <= INT4_FEW_SPLIT_MOST; split *= 2)
    for (int blocks = 0; blocks <= INT4_FEW_BLOCKS_MOST; blocks++) {
      int rows = blocks == 0 ? even_rows(n, split, sms) : blocks * INT4_FEW_ROWS;
      struct int4_few_config config = {.columns = columns, .split_k = split, .rows = rows};
      if (blocks == 0 && rows % INT4_FEW_ROWS == 0)
        continue;
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
