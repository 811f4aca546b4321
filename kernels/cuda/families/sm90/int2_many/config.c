#include "config.h"
#include "../int2/a8_layout.h"

#include <math.h>
#include <string.h>

/* Units that a block has at least, where a product is small. */
enum { UNITS_LEAST = 4 };

/* Tiles that there are kernels for, narrowest first, and what they take: fitted to an H200, 16 shapes' products with
 * every size of tiles and every split, 3 to 6 % off. What it picks takes 0.2 (INT8) to 0.6 % longer than the best of
 * these. */
struct tile {
  int columns, rows;
  struct int2_many_prices prices;
};

static const struct tile of_f16[] =
    {{16, 256, {0.343, 2.55, 0.175, 0.336, 0.104}}, {16, 192, {0.297, 2.61, 0.175, 0.249, 0.058}},
     {16, 128, {0.239, 2.47, 0.04, 0.221, 0.056}},  {24, 256, {0.413, 2.34, 1.77, 0.456, 0.381}},
     {32, 256, {0.509, 2.28, 1.97, 0.63, 0.385}},   {48, 256, {0.728, 2.24, 3.65, 1.02, 0.726}},
     {64, 256, {0.819, 2.55, 4.13, 1.45, 0.893}},   {96, 256, {0.96, 4.11, 5.22, 2.55, 1.26}},
     {96, 192, {0.764, 3.11, 6.34, 1.42, 1.39}},    {104, 256, {1.05, 2.62, 8.88, 1.78, 2.33}},
     {104, 192, {0.812, 3.25, 6.7, 1.22, 2.42}},    {128, 256, {1.2, 4.05, 8.8, 2.24, 2.46}},
     {128, 192, {0.911, 4.16, 7.44, 1.21, 3.11}},   {0}},
                         of_bf16[] = {{16, 256, {0.343, 2.55, 0.175, 0.336, 0.104}},
                                      {16, 192, {0.297, 2.61, 0.175, 0.249, 0.058}},
                                      {16, 128, {0.239, 2.47, 0.04, 0.221, 0.056}},
                                      {24, 256, {0.413, 2.34, 1.77, 0.456, 0.381}},
                                      {32, 256, {0.509, 2.28, 1.97, 0.63, 0.385}},
                                      {48, 256, {0.728, 2.24, 3.65, 1.02, 0.726}},
                                      {64, 256, {0.819, 2.55, 4.13, 1.45, 0.893}},
                                      {96, 192, {0.864, 2.96, 5.16, 1.91, 1.26}},
                                      {104, 192, {0.934, 2.21, 5.19, 2.5, 1.7}},
                                      {128, 192, {1.08, 3.1, 6.53, 2.4, 1.9}},
                                      {0}},
                         of_int8[] = {{32, 256, {0.79, 4.44, 2.85, 0.909, 0.836}},
                                      {48, 256, {0.951, 4.81, 3.28, 1.38, 0.988}},
                                      {64, 256, {1.15, 5.06, 4.56, 1.45, 1.05}},
                                      {96, 192, {1.17, 5.37, 5.6, 1.88, 1.45}},
                                      {112, 192, {1.37, 6.03, 6.2, 2.02, 1.44}},
                                      {128, 192, {1.49, 6.46, 6.79, 2.01, 1.56}},
                                      {0}};

static const struct tile *tiles_of(enum gemm_type x_type) {
  return x_type == GEMM_INT8 ? of_int8 : x_type == GEMM_F16 ? of_f16 : of_bf16;
}

/* NULL: none. */
static const struct tile *tile_of(enum gemm_type x_type, int columns, int rows) {
  const struct tile *tile = tiles_of(x_type);
  while (tile->columns > 0 && (tile->columns != columns || tile->rows != rows))
    tile++;
  return tile->columns > 0 ? tile : NULL;
}

const int *int2_many_columns(enum gemm_type x_type) {
  static const int of_16[] = {16, 24, 32, 48, 64, 96, 104, 128, 0}, of_8[] = {32, 48, 64, 96, 112, 128, 0};
  return x_type == GEMM_INT8 ? of_8 : of_16;
}

bool int2_many_has(enum gemm_type x_type, int columns, int rows) {
  return tile_of(x_type, columns, rows) != NULL;
}

/* Of K. */
static int int2_many_unit(enum gemm_type x_type) {
  return x_type == GEMM_INT8 ? INT2A8_TILE_K : GEMM_GROUP;
}

int64_t int2_many_least(enum gemm_type x_type, enum gemm_type y_type) {
  if (x_type == GEMM_F32)
    return INT64_MAX;
  return x_type == GEMM_INT8 ? 17 : y_type == GEMM_F32 ? 5 : 9;
}

static int64_t quotient_up(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

static struct int2_many_divisor divisor(uint32_t by) {
  uint32_t bits = 0;
  while (((uint64_t)1 << bits) < by)
    bits++;
  if (bits == 0)
    return (struct int2_many_divisor){0};
  return (struct int2_many_divisor){(uint32_t)((((uint64_t)1 << (31 + bits)) + by - 1) / by), bits - 1};
}

bool int2_many_cut(const struct int2_many_config *config, int rows, int unit, int64_t m, int64_t n, int64_t k, int sms,
                   struct int2_many_plan *out) {
  memset(out, 0, sizeof *out);
  if (config->split_k < 0 || config->split_k > INT2_MANY_SPLIT_MOST || config->group < 1 || sms < 1)
    return false;
  int64_t w_tiles = quotient_up(n, rows), x_tiles = quotient_up(m, config->columns);
  out->tiles_k = (int)quotient_up(k, unit);
  out->row_blocks = (int)quotient_up(n, 64);
  out->w_tiles = (int)w_tiles;
  out->x_tiles = (int)x_tiles;
  if (w_tiles * x_tiles > INT32_MAX / out->tiles_k)
    return false;
  int64_t tiles = w_tiles * x_tiles, units = tiles * out->tiles_k;
  int64_t blocks = units / UNITS_LEAST < sms ? units / UNITS_LEAST : sms;
  if (config->split_k > 0)
    blocks = config->split_k == 1 && tiles > sms ? sms : tiles * config->split_k;
  out->units = (int)units;
  out->blocks = (int)(blocks < 1 ? 1 : blocks);
  /* What is left over goes with a last wave, so that no tile has many blocks. */
  if (config->split_k == 0)
    out->waves = (int)(tiles / out->blocks) - (tiles > out->blocks && tiles % out->blocks > 0);
  out->shared_units = (int)(units - (int64_t)out->waves * out->blocks * out->tiles_k);
  if (config->split_k == 1) {
    out->waves = (int)quotient_up(tiles, out->blocks) - 1;
    out->shared_units = out->blocks * out->tiles_k;
  }
  out->by_tiles_k = divisor((uint32_t)out->tiles_k);
  out->by_split = divisor((uint32_t)config->split_k);
  out->shared_each = out->shared_units / out->blocks;
  out->shared_more = out->shared_units % out->blocks;
  return config->split_k <= out->tiles_k && out->blocks <= sms;
}

bool int2_many_plan_for(const struct int2_many_config *config, enum gemm_type x_type, int64_t m, int64_t n, int64_t k,
                        int sms, struct int2_many_plan *out) {
  memset(out, 0, sizeof *out);
  return int2_many_has(x_type, config->columns, config->rows) &&
         int2_many_cut(config, config->rows, int2_many_unit(x_type), m, n, k, sms, out);
}

/* Runs of units are at all places of K at a time: where the L2 does not hold x, they cost up to 10 % more at the clock
 * of a cool card, nothing at that of a warm one, where waves of tiles have at most 3 % to lose: so little decides. */
static double runs_cost(const struct int2_many_config *config, const struct int2_many_plan *plan) {
  const double held = 50e6, most = 0.02; /* a unit of a row of x has as many bytes for all types */
  double x_bytes = (double)plan->x_tiles * config->columns * plan->tiles_k * GEMM_GROUP * 2;
  return 1 + most * fmin(x_bytes / held, 1);
}

double int2_many_priced(const struct int2_many_config *config, const struct int2_many_prices *prices,
                        const struct int2_many_plan *plan) {
  int split = config->split_k;
  if (split > 0)
    return prices->fixed + quotient_up(plan->tiles_k, split) * (1 + plan->waves) * prices->unit +
           prices->part * (split - 1);
  double shared = (double)plan->shared_units / plan->blocks;
  double others = shared > 0 ? fmax(plan->tiles_k / shared - 1, 0) : 0;
  return prices->fixed + (shared * runs_cost(config, plan) + (double)plan->waves * plan->tiles_k) * prices->unit +
         prices->runs + prices->share * others;
}

/* Tiles of 16 columns are soon done with their W: what waiting for it adds by the multiprocessors, of 132, that ask. */
static double waiting_us(const struct int2_many_config *config, const struct int2_many_plan *plan) {
  enum { NARROW = 16, ROWS_STEP = 64, FITTED_TO = 132 };
  static const double by_rows[] = {1.05, 0.83, 1.08};
  if (config->columns != NARROW)
    return 0;
  return by_rows[(config->rows - INT2_MANY_ROWS_LEAST) / ROWS_STEP] * plan->blocks / FITTED_TO;
}

double int2_many_us(const struct int2_many_config *config, enum gemm_type x_type, const struct int2_many_plan *plan) {
  return int2_many_priced(config, &tile_of(x_type, config->columns, config->rows)->prices, plan) +
         waiting_us(config, plan);
}

struct int2_many_config int2_many_configure(enum gemm_type x_type, int64_t m, int64_t n, int64_t k, int sms) {
  const struct tile *tile = tiles_of(x_type);
  struct int2_many_config best = {.columns = tile->columns, .group = 8, .rows = tile->rows};
  struct int2_many_plan plan;
  double least = INFINITY;
  for (int before = 0; tile->columns > 0; tile++) {
    if (tile->columns != before) { /* none is wider than the narrowest that holds all rows */
      if (before >= m)
        break;
      before = tile->columns;
    }
    for (int split = 0; split <= INT2_MANY_SPLIT_MOST; split++) {
      struct int2_many_config config = {.columns = tile->columns, .split_k = split, .group = 8, .rows = tile->rows};
      if (!int2_many_plan_for(&config, x_type, m, n, k, sms, &plan) || int2_many_us(&config, x_type, &plan) >= least)
        continue;
      least = int2_many_us(&config, x_type, &plan);
      best = config;
    }
  }
  return best;
}

uint64_t int2_many_sums_bytes(int sms) {
  uint64_t widest = INT2_MANY_ROWS_MOST * INT2_MANY_COLUMNS_MOST;
  return (uint64_t)sms * widest * sizeof(float);
}

bool int2_many_same(const struct int2_many_config *left, const struct int2_many_config *right, int64_t m) {
  int64_t tiles = (m + left->columns - 1) / left->columns;
  return left->columns == right->columns && left->rows == right->rows && left->split_k == right->split_k &&
         (left->group == right->group || (left->group >= tiles && right->group >= tiles));
}
