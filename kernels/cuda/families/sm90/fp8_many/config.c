#include "config.h"

#include "../../../heuristics/clusters.h"
#include "../../../heuristics/waves.h"

#include <math.h>
#include <string.h>

enum { ROWS_OF_X = 64 /* up to which hopper/config.h's kernel is faster */, GROUP = 16, GROUP_MOST = 64 };

static int64_t quotient_up(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

bool fp8_many_takes(const struct kernel_problem *problem) {
  return problem->device.capability == 90 && problem->format == GEMM_FORMAT_FP8 && !kernel_problem_cancels(problem) &&
         problem->scale != GEMM_SCALE_BLOCK && problem->m > ROWS_OF_X;
}

static struct fp8_many_divisor divisor(int64_t by) {
  return (struct fp8_many_divisor){(uint32_t)by, by > 1 ? (uint32_t)(((uint64_t)1 << 32) / (uint64_t)by + 1) : 0};
}

static bool config_valid(const struct fp8_many_config *config, const struct kernel_problem *problem) {
  bool tall = config->rows == FP8_MANY_ROWS_MOST;
  return (tall || config->rows == FP8_MANY_ROWS_LEAST) && config->split_k >= 1 &&
         config->split_k <= FP8_MANY_SPLIT_MOST && config->group >= 1 && config->group <= GROUP_MOST &&
         (!tall || (config->split_k == 1 && problem->y_type == GEMM_BF16));
}

bool fp8_many_plan_for(const struct fp8_many_config *config, const struct kernel_problem *problem,
                       struct fp8_many_plan *out) {
  int sms = problem->device.multiprocessors;
  memset(out, 0, sizeof *out);
  if (!config_valid(config, problem))
    return false;
  int64_t w_tiles = quotient_up(problem->n, config->rows), x_tiles = quotient_up(problem->m, FP8_MANY_COLUMNS);
  int64_t steps = quotient_up(problem->k_padded, FP8_MANY_STEP),
          group = x_tiles < config->group ? x_tiles : config->group;
  int64_t tiles = w_tiles * x_tiles, in_group = group * w_tiles;
  if (tiles > INT32_MAX || (tiles + in_group) * in_group > UINT32_MAX || config->split_k > steps ||
      (config->split_k > 1 && (double)(tiles * config->split_k) > clusters_usable(sms, config->split_k)))
    return false;
  *out = (struct fp8_many_plan){
      .steps = (int)steps,
      .steps_of_block = (int)quotient_up(steps, config->split_k),
      .w_tiles = (int)w_tiles,
      .x_tiles = (int)x_tiles,
      .columns = (int)(quotient_up(quotient_up(problem->m, x_tiles), 8) * 8),
      .blocks = (int)(tiles * config->split_k < sms ? tiles * config->split_k : sms),
      .split_k = config->split_k,
      .group = (int)group,
      .by_group = divisor(in_group),
      .by_wide = divisor(group),
      .by_last = divisor((x_tiles - 1) % group + 1),
  };
  return true;
}

/* ---- the model */

static double cost(const struct fp8_many_config *config, const struct kernel_problem *problem) {
  static const struct wave_prices of_split[] = {
      {3.8, 1.2, 0.28, 0.095}, {4.8, 1.2, 0.28, 0.095}, {5.2, 1.2, 0.28, 0.095}, {5.6, 1.2, 0.28, 0.095}};
  static const struct wave_prices tall = {3.8, 1.9, 0.62, 0.14};
  struct wave_prices prices = config->rows == FP8_MANY_ROWS_MOST ? tall : of_split[config->split_k - 1];
  /* Sums that leave after every instruction take the time of their additions. */
  if (problem->y_type != GEMM_BF16)
    prices.step = 0.47;
  return waves_us(&prices, problem, &(struct wave_cut){config->rows, config->split_k, config->group});
}

struct fp8_many_config fp8_many_configure(const struct kernel_problem *problem, double *us) {
  struct fp8_many_config best = {.rows = FP8_MANY_ROWS_LEAST, .split_k = 1, .group = GROUP};
  struct fp8_many_plan plan;
  *us = INFINITY;
  for (int rows = FP8_MANY_ROWS_LEAST; rows <= FP8_MANY_ROWS_MOST; rows *= 2)
    for (int split = 1; split <= FP8_MANY_SPLIT_MOST; split++) {
      const struct fp8_many_config config = {.rows = rows, .split_k = split, .group = GROUP};
      if (!fp8_many_plan_for(&config, problem, &plan) || cost(&config, problem) >= *us)
        continue;
      best = config;
      *us = cost(&config, problem);
    }
  return best;
}

int fp8_many_candidates(const struct kernel_problem *problem, struct fp8_many_config out[FP8_MANY_ALL]) {
  static const int groups[] = {GROUP, GROUP / 2};
  struct fp8_many_plan plan;
  double us;
  int count = 1;
  out[0] = fp8_many_configure(problem, &us);
  for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
    for (int rows = FP8_MANY_ROWS_LEAST; rows <= FP8_MANY_ROWS_MOST; rows *= 2)
      for (int split = 1; split <= FP8_MANY_SPLIT_MOST; split++) {
        const struct fp8_many_config config = {.rows = rows, .split_k = split, .group = groups[i]};
        bool first = rows == out[0].rows && split == out[0].split_k && groups[i] == out[0].group;
        bool same_order = groups[i] != GROUP && problem->m <= groups[i] * FP8_MANY_COLUMNS;
        if (!first && !same_order && fp8_many_plan_for(&config, problem, &plan))
          out[count++] = config;
      }
  return count;
}
