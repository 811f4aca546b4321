#include "int2_many_config.h"

#include <string.h>

/* Units that a block has at least, where a product is small. */
enum { UNITS_LEAST = 4 };

int64_t int2_many_least(enum gemm_type x_type, int64_t k) {
  enum { ROWS_LEAST = 17, ROWS_LEAST_LONG = 9, K_LONG = 16384 };
  return x_type == GEMM_F32 ? INT64_MAX : k > K_LONG ? ROWS_LEAST_LONG : ROWS_LEAST;
}

static int64_t quotient_up(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

/* Of W, in a tile. */
static int64_t rows_of(const struct int2_many_config *config) {
  return 64 * INT2_MANY_GROUPS(config->columns);
}

struct int2_many_config int2_many_configure(int64_t m, int64_t n, int64_t k, int sms) {
  struct int2_many_config config = {.columns = m <= 16 ? 16 : m <= 32 ? 32 : m <= 64 ? 64 : 128, .group = 8};
  int64_t tiles = quotient_up(n, rows_of(&config)) * quotient_up(m, config.columns);
  int64_t split = sms / tiles, most = quotient_up(quotient_up(k, GEMM_GROUP), UNITS_LEAST);
  split = split < most ? split : most;
  if (tiles <= sms / 2)
    config.split_k = (int)(split < 1 ? 1 : split > INT2_MANY_SPLIT_MOST ? INT2_MANY_SPLIT_MOST : split);
  return config;
}

bool int2_many_plan_for(const struct int2_many_config *config, int64_t m, int64_t n, int64_t k, int sms,
                        struct int2_many_plan *out) {
  memset(out, 0, sizeof *out);
  if ((config->columns != 16 && config->columns != 32 && config->columns != 64 && config->columns != 128) ||
      config->split_k < 0 || config->split_k > INT2_MANY_SPLIT_MOST || config->group < 1 || sms < 1)
    return false;
  int64_t w_tiles = quotient_up(n, rows_of(config)), x_tiles = quotient_up(m, config->columns);
  out->tiles_k = (int)quotient_up(k, GEMM_GROUP);
  out->row_blocks = (int)quotient_up(n, 64);
  out->w_tiles = (int)w_tiles;
  out->x_tiles = (int)x_tiles;
  if (w_tiles * x_tiles > INT32_MAX / out->tiles_k)
    return false;
  int64_t tiles = w_tiles * x_tiles, units = tiles * out->tiles_k;
  int64_t blocks = units / UNITS_LEAST < sms ? units / UNITS_LEAST : sms;
  if (config->split_k > 0)
    blocks = tiles * config->split_k;
  out->blocks = (int)(blocks < 1 ? 1 : blocks);
  /* What is left over goes with a last wave, so that no tile has many blocks. */
  if (config->split_k == 0)
    out->waves = (int)(tiles / out->blocks) - (tiles > out->blocks && tiles % out->blocks > 0);
  out->shared_units = (int)((tiles - (int64_t)out->waves * out->blocks) * out->tiles_k);
  out->shared_each = out->shared_units / out->blocks;
  out->shared_more = out->shared_units % out->blocks;
  return config->split_k <= out->tiles_k && out->blocks <= sms;
}

uint64_t int2_many_sums_bytes(int sms) {
  uint64_t narrow = 64 * INT2_MANY_GROUPS(64) * 64, wide = 64 * INT2_MANY_GROUPS(128) * 128;
  return (uint64_t)sms * (narrow > wide ? narrow : wide) * sizeof(float);
}
