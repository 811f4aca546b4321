#include "config.h"

#include "../../../heuristics/clusters.h"

#include <math.h>
#include <string.h>

enum { ROWS_OF_X = 64 /* up to which hopper/config.h's kernel is faster */, GROUP = 16, GROUP_MOST = 64 };

static int64_t quotient_up(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

bool fp8_many_takes(const struct hopper_product *product) {
  return product->format == GEMM_FORMAT_FP8 && product->scale != GEMM_SCALE_BLOCK && product->m > ROWS_OF_X;
}

static struct fp8_many_divisor divisor(int64_t by) {
  return (struct fp8_many_divisor){(uint32_t)by, by > 1 ? (uint32_t)(((uint64_t)1 << 32) / (uint64_t)by + 1) : 0};
}

static bool config_valid(const struct fp8_many_config *config, const struct hopper_product *product) {
  bool tall = config->rows == FP8_MANY_ROWS_MOST;
  return (tall || config->rows == FP8_MANY_ROWS_LEAST) && config->split_k >= 1 &&
         config->split_k <= FP8_MANY_SPLIT_MOST && config->group >= 1 && config->group <= GROUP_MOST &&
         (!tall || (config->split_k == 1 && product->y_type == GEMM_BF16));
}

bool fp8_many_plan_for(const struct fp8_many_config *config, const struct hopper_product *product, int sms,
                       struct fp8_many_plan *out) {
  memset(out, 0, sizeof *out);
  if (!config_valid(config, product))
    return false;
  int64_t w_tiles = quotient_up(product->n, config->rows), x_tiles = quotient_up(product->m, FP8_MANY_COLUMNS);
  int64_t steps = quotient_up(product->k, FP8_MANY_STEP), group = x_tiles < config->group ? x_tiles : config->group;
  int64_t tiles = w_tiles * x_tiles, in_group = group * w_tiles;
  if (tiles > INT32_MAX || (tiles + in_group) * in_group > UINT32_MAX || config->split_k > steps ||
      (config->split_k > 1 && (double)(tiles * config->split_k) > clusters_usable(sms, config->split_k)))
    return false;
  *out = (struct fp8_many_plan){
      .steps = (int)steps,
      .steps_of_block = (int)quotient_up(steps, config->split_k),
      .w_tiles = (int)w_tiles,
      .x_tiles = (int)x_tiles,
      .columns = (int)(quotient_up(quotient_up(product->m, x_tiles), 8) * 8),
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

/* Fitted to an H200, in microseconds: what a launch begins and ends with, writing a tile, and 128 of K of it in a block
 * that is alone, and what it takes longer where all multiprocessors have one. */
struct prices {
  double launch, tile, step, step_crowded;
};

static double waves_us(const struct prices *prices, const struct hopper_product *product, int sms, int rows, int split,
                       int group) {
  static const double memory = 4.45e6; /* bytes of W */
  double tiles = (double)(quotient_up(product->n, rows) * quotient_up(product->m, FP8_MANY_COLUMNS));
  double x_tiles = (double)quotient_up(product->m, FP8_MANY_COLUMNS), waves = ceil(tiles * split / sms);
  double blocks = fmin(tiles * split, sms), steps = ceil((double)product->k / FP8_MANY_STEP / split);
  double step = prices->step + prices->step_crowded * blocks / sms;
  double coming = blocks * rows * FP8_MANY_STEP / fmin(x_tiles, group) / memory;
  return prices->launch + waves * (prices->tile / split + steps * fmax(step, coming));
}

static double cost(const struct fp8_many_config *config, const struct hopper_product *product, int sms) {
  static const struct prices of_split[] = {
      {3.8, 1.2, 0.28, 0.095}, {4.8, 1.2, 0.28, 0.095}, {5.2, 1.2, 0.28, 0.095}, {5.6, 1.2, 0.28, 0.095}};
  static const struct prices tall = {3.8, 1.9, 0.62, 0.14};
  struct prices prices = config->rows == FP8_MANY_ROWS_MOST ? tall : of_split[config->split_k - 1];
  /* Sums that leave after every instruction take the time of their additions. */
  if (product->y_type != GEMM_BF16)
    prices.step = 0.47;
  return waves_us(&prices, product, sms, config->rows, config->split_k, config->group);
}

double fp8_many_library_us(const struct hopper_product *product, int sms) {
  static const struct prices prices = {3.4, 1.2, 0.285, 0.095};
  /* With many waves the card's power decides, of which it takes 5 % less. A tile that goes beyond x costs all others
   * their time, where the device is busy. */
  enum { WAVES = 6 };
  static const double BUSY = 0.75, BEYOND = 1.25;
  int64_t tiles = quotient_up(product->n, FP8_MANY_ROWS_LEAST) * quotient_up(product->m, FP8_MANY_COLUMNS);
  bool beyond = product->m > FP8_MANY_COLUMNS && product->m % FP8_MANY_COLUMNS != 0 && (double)tiles > BUSY * sms;
  return waves_us(&prices, product, sms, FP8_MANY_ROWS_LEAST, 1, GROUP) * (tiles > WAVES * (int64_t)sms ? 0.95 : 1) *
         (beyond ? BEYOND : 1);
}

struct fp8_many_config fp8_many_configure(const struct hopper_product *product, int sms, double *us) {
  struct fp8_many_config best = {.rows = FP8_MANY_ROWS_LEAST, .split_k = 1, .group = GROUP};
  struct fp8_many_plan plan;
  *us = INFINITY;
  for (int rows = FP8_MANY_ROWS_LEAST; rows <= FP8_MANY_ROWS_MOST; rows *= 2)
    for (int split = 1; split <= FP8_MANY_SPLIT_MOST; split++) {
      const struct fp8_many_config config = {.rows = rows, .split_k = split, .group = GROUP};
      if (!fp8_many_plan_for(&config, product, sms, &plan) || cost(&config, product, sms) >= *us)
        continue;
      best = config;
      *us = cost(&config, product, sms);
    }
  return best;
}

int fp8_many_candidates(const struct hopper_product *product, int sms, struct fp8_many_config out[FP8_MANY_ALL]) {
  static const int groups[] = {GROUP, GROUP / 2};
  struct fp8_many_plan plan;
  double us;
  int count = 1;
  out[0] = fp8_many_configure(product, sms, &us);
  for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
    for (int rows = FP8_MANY_ROWS_LEAST; rows <= FP8_MANY_ROWS_MOST; rows *= 2)
      for (int split = 1; split <= FP8_MANY_SPLIT_MOST; split++) {
        const struct fp8_many_config config = {.rows = rows, .split_k = split, .group = groups[i]};
        bool first = rows == out[0].rows && split == out[0].split_k && groups[i] == out[0].group;
        bool same_order = groups[i] != GROUP && product->m <= groups[i] * FP8_MANY_COLUMNS;
        if (!first && !same_order && fp8_many_plan_for(&config, product, sms, &plan))
          out[count++] = config;
      }
  return count;
}
