#include "config.h"
#include "../int2/a8_layout.h"

#include <math.h>
#include <string.h>

/* Units that a block has at least, where a product is small. */
enum { UNITS_LEAST = 4 };

int int2_many_columns_least(enum gemm_type x_type) {
  return x_type == GEMM_INT8 ? 2 * INT2_MANY_COLUMNS_LEAST : INT2_MANY_COLUMNS_LEAST;
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

/* Of W, in a tile. */
static int64_t rows_of(const struct int2_many_config *config, enum gemm_type x_type) {
  return 64 * INT2_MANY_GROUPS(config->columns, x_type == GEMM_F16);
}

bool int2_many_plan_for(const struct int2_many_config *config, enum gemm_type x_type, int64_t m, int64_t n, int64_t k,
                        int sms, struct int2_many_plan *out) {
  memset(out, 0, sizeof *out);
  if (config->columns < int2_many_columns_least(x_type) || config->columns > INT2_MANY_COLUMNS_MOST ||
      (config->columns & (config->columns - 1)) != 0 || config->split_k < 0 || config->split_k > INT2_MANY_SPLIT_MOST ||
      config->group < 1 || sms < 1)
    return false;
  int64_t w_tiles = quotient_up(n, rows_of(config, x_type)), x_tiles = quotient_up(m, config->columns);
  out->tiles_k = (int)quotient_up(k, int2_many_unit(x_type));
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
  out->shared_each = out->shared_units / out->blocks;
  out->shared_more = out->shared_units % out->blocks;
  return config->split_k <= out->tiles_k && out->blocks <= sms;
}

/* Runs of units are at all places of K at a time: where the L2 does not hold x, they cost up to 10 % more at the clock
 * of a cool card, nothing at that of a warm one, where waves of tiles have at most 3 % to lose: so little decides. */
static double runs_cost(const struct int2_many_config *config, const struct int2_many_plan *plan) {
  const double held = 50e6, most = 0.02; /* a unit of a row of x has as many bytes for all types */
  double x_bytes = (double)plan->x_tiles * config->columns * plan->tiles_k * GEMM_GROUP * 2;
  return 1 + most * fmin(x_bytes / held, 1);
}

/* Fitted to an H200: a unit, what every block begins and ends with, and what adding up takes: runs of units, each block
 * more that has a run of the same tile, and each more that has an equal part. */
double int2_many_us(const struct int2_many_config *config, enum gemm_type x_type, const struct int2_many_plan *plan) {
  static const struct row {
    double unit, fixed, runs, share, part;
  } of[] = {{0.364, 2.8, 0.62, 0.38, 0.375},
            {0.51, 2.95, 1.18, 0.92, 0.53},
            {0.81, 3.15, 3.6, 1.56, 0.85},
            {0.95, 9.7, 7, 0, 0.3}},
    of_scaled = {1.2, 8, 7, 0, 0.3},
    of_int8[] = {{0}, {0.8, 5.3, 4, 0, 0.3}, {1.15, 6, 6, 0, 0.3}, {1.4, 9.7, 7, 0, 0.3}};
  bool scaled = INT2_MANY_SCALES_W(config->columns, x_type == GEMM_F16);
  int split = config->split_k;
  const struct row *rows = x_type == GEMM_INT8 ? of_int8 : of;
  const struct row *row =
      scaled ? &of_scaled : &rows[__builtin_ctz((unsigned)config->columns / INT2_MANY_COLUMNS_LEAST)];
  if (split > 0)
    return row->fixed + quotient_up(plan->tiles_k, split) * (1 + plan->waves) * row->unit + row->part * (split - 1);
  double shared = (double)plan->shared_units / plan->blocks;
  double others = shared > 0 ? fmax(plan->tiles_k / shared - 1, 0) : 0;
  return row->fixed + (shared * runs_cost(config, plan) + (double)plan->waves * plan->tiles_k) * row->unit + row->runs +
         row->share * others;
}

struct int2_many_config int2_many_configure(enum gemm_type x_type, int64_t m, int64_t n, int64_t k, int sms) {
  int most = int2_many_columns_least(x_type);
  while (most < m && most < INT2_MANY_COLUMNS_MOST)
    most *= 2;
  struct int2_many_config best = {.columns = most, .group = 8};
  struct int2_many_plan plan;
  double least = INFINITY;
  for (int columns = most > 32 ? most / 2 : most; columns <= most; columns *= 2)
    for (int split = 0; split <= INT2_MANY_SPLIT_MOST; split++) {
      struct int2_many_config config = {.columns = columns, .split_k = split, .group = 8};
      if (!int2_many_plan_for(&config, x_type, m, n, k, sms, &plan) || int2_many_us(&config, x_type, &plan) >= least)
        continue;
      least = int2_many_us(&config, x_type, &plan);
      best = config;
    }
  return best;
}

uint64_t int2_many_sums_bytes(int sms) {
  uint64_t widest = 64 * INT2_MANY_GROUPS(INT2_MANY_COLUMNS_MOST, true) * INT2_MANY_COLUMNS_MOST;
  return (uint64_t)sms * widest * sizeof(float);
}
