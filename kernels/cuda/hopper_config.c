#include "hopper_config.h"

/* Bytes of K in a step of a row, as hopper_kernel.cuh has it. */
enum { STEP = 256, GROUP_ROWS = 64, SHARED_MOST = 227 * 1024 };

int hopper_shared_bytes(const struct hopper_config *config) {
  int slots = config->ahead + 1, height = config->groups * GROUP_ROWS;
  /* The tensor cores read whole groups of rows, past the last slot's end where `rows` is fewer. */
  int ring = slots * (config->rows + config->columns) * STEP + (height - config->rows) * STEP / 2;
  int scales = slots * config->columns * 2 * (int)sizeof(float);
  int sums = config->columns * (height + 4) * (int)sizeof(float);
  return 1024 + (ring + scales > sums ? ring + scales : sums);
}

static int columns_most(enum gemm_scale scale) {
  return scale == GEMM_SCALE_BLOCK ? HOPPER_BLOCK_COLUMNS_MOST : HOPPER_COLUMNS_MOST;
}

bool hopper_config_valid(const struct hopper_config *config, enum gemm_scale scale) {
  bool narrow = config->columns == 8 || config->columns == 16 || config->columns == 32 || config->columns == 64;
  bool known = narrow ? config->ahead == 3 || (config->ahead == 6 && config->groups == 1)
                      : config->columns == 128 && config->ahead == (config->groups == 1 ? 3 : 2);
  return known && config->columns <= columns_most(scale) && (config->groups == 1 || config->groups == 2) &&
         config->rows > 0 && config->rows % 8 == 0 && config->rows <= config->groups * GROUP_ROWS &&
         config->split_k >= 1 && config->split_k <= 8 && hopper_shared_bytes(config) <= SHARED_MOST;
}

static int columns_for(int64_t m, enum gemm_scale scale) {
  int columns = 8;
  while (columns < m && columns < columns_most(scale))
    columns *= 2;
  return columns;
}

/* Microseconds by a model of three terms: the blocks of the busiest multiprocessor, each reading its rows of W and, at
 * a quarter of the price, its rows of x from L2; joining the sums of a cluster; and a little for every block. Fitted to
 * an H200: one multiprocessor draws 34 GB/s of the memory when all do, and 90 GB/s when few do. */
static double cost(const struct hopper_config *config, const struct hopper_product *product, int sms) {
  int64_t tiles = (product->n + config->rows - 1) / config->rows;
  int64_t rows_of_x = (product->m + config->columns - 1) / config->columns;
  int64_t blocks = tiles * rows_of_x * config->split_k;
  int64_t steps = ((product->k + STEP - 1) / STEP + config->split_k - 1) / config->split_k;
  double bytes = (double)(steps * STEP) * (config->rows + config->columns / 4.0 + 4);
  double waves = (double)((blocks + sms - 1) / sms), busy = blocks < sms ? (double)blocks / sms : 1;
  double rate = 90e3 - 56e3 * busy;
  return waves * bytes / rate + (config->split_k > 1 ? 0.7 : 0) + 0.1 * waves;
}

/* Two blocks with a short ring each fit a multiprocessor; one alone wants the long ring. */
static int ahead_for(const struct hopper_config *config, const struct hopper_product *product, int sms) {
  int64_t blocks = (product->n + config->rows - 1) / config->rows * config->split_k;
  if (config->columns == HOPPER_COLUMNS_MOST)
    return config->groups == 1 ? 3 : 2;
  return config->groups == 1 && blocks <= sms ? 6 : 3;
}

struct hopper_config hopper_configure(const struct hopper_product *product, int sms) {
  struct hopper_config best = {0};
  double best_cost = 0;
  int columns = columns_for(product->m, product->scale);
  /* Few rows of x: small blocks in numbers that fill the device. Many: tall blocks, which read x less often. */
  int groups = columns >= 64 ? 2 : 1;
  for (int rows = groups == 2 ? 72 : 32; rows <= groups * GROUP_ROWS; rows += 8) {
    for (int split_k = 1; split_k <= 8; split_k *= 2) {
      struct hopper_config config = {.columns = columns, .groups = groups, .rows = rows, .split_k = split_k};
      config.ahead = ahead_for(&config, product, sms);
      if (!hopper_config_valid(&config, product->scale))
        continue;
      double us = cost(&config, product, sms);
      if (best.rows == 0 || us < best_cost) {
        best = config;
        best_cost = us;
      }
    }
  }
  return best;
}

/* Puts a configuration in its place by cost; the last one falls off where there is no room. */
static int insert(const struct hopper_product *product, int sms, const struct hopper_config *config,
                  struct hopper_config *out, int count, int most) {
  double us = cost(config, product, sms);
  int place = count < most ? count : most - 1;
  if (count == most && cost(&out[place], product, sms) <= us)
    return count;
  for (; place > 1 && cost(&out[place - 1], product, sms) > us; place--)
    out[place] = out[place - 1];
  out[place] = *config;
  return count < most ? count + 1 : most;
}

static bool same(const struct hopper_config *a, const struct hopper_config *b) {
  return a->columns == b->columns && a->groups == b->groups && a->rows == b->rows && a->split_k == b->split_k &&
         a->ahead == b->ahead;
}

int hopper_candidates(const struct hopper_product *product, int sms, bool all, struct hopper_config *out, int most) {
  static const int aheads[] = {2, 3, 6};
  int count = 1, usual = columns_for(product->m, product->scale);
  out[0] = hopper_configure(product, sms);
  for (int columns = all ? 8 : usual; columns <= (all ? columns_most(product->scale) : usual); columns *= 2)
    for (int groups = 1; groups <= 2; groups++)
      for (int rows = 16; rows <= groups * GROUP_ROWS; rows += 8)
        for (int split_k = 1; split_k <= 8; split_k *= 2)
          for (int i = 0; i < 3; i++) {
            struct hopper_config config = {
                .columns = columns, .groups = groups, .rows = rows, .split_k = split_k, .ahead = aheads[i]};
            if (hopper_config_valid(&config, product->scale) && !same(&config, &out[0]) && most > 1)
              count = insert(product, sms, &config, out, count, most);
          }
  return count;
}
