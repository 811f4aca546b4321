#include "int2_few_config.h"
#include "clusters.h"
#include "int2_layout.h"
#include "ranking.h"

#include <string.h>

enum { SHARED_MOST = 227 * 1024, RING_BYTES = INT2_FEW_PAIRS * INT2_TILE_BYTES };

/* Bytes of a block's sums as int2_few.cuh keeps them: [columns][68] f32. */
static int slot_bytes(const struct int2_few_config *config) {
  return config->columns * (INT2_BLOCK_ROWS + 4) * 4;
}

bool int2_few_plan_for(const struct int2_few_config *config, int64_t n, int64_t k, struct int2_few_plan *out) {
  int split = config->split_k, blocks = config->blocks;
  memset(out, 0, sizeof *out);
  out->tiles = (int)((k + GEMM_GROUP - 1) / GEMM_GROUP);
  out->row_blocks = (int)((n + INT2_BLOCK_ROWS - 1) / INT2_BLOCK_ROWS);
  if (split < 1 || split > INT2_FEW_SPLIT_MOST || split > out->tiles || blocks < 1 || blocks > INT2_FEW_BLOCKS_MOST)
    return false;
  out->clusters = (out->row_blocks + blocks - 1) / blocks;
  int longest = 0;
  for (int rank = 0; rank <= split; rank++)
    out->first_tile[rank] = (int)((int64_t)out->tiles * rank / split);
  for (int rank = 0; rank < split; rank++) {
    int length = out->first_tile[rank + 1] - out->first_tile[rank], total = blocks * length;
    longest = length > longest ? length : longest;
    for (int pair = 0; pair < INT2_FEW_PAIRS; pair++) {
      int begin = total * pair / INT2_FEW_PAIRS, end = total * (pair + 1) / INT2_FEW_PAIRS;
      int spans = begin < end ? (end - 1) / length - begin / length + 1 : 0;
      out->first_block[rank][pair] = (int16_t)(begin / length);
      out->slots = spans > out->slots ? spans : out->slots;
    }
  }
  int count = 0;
  for (int block = 0; block < blocks; block++) {
    out->first_part[block] = (int16_t)count;
    for (int rank = 0; rank < split; rank++) {
      int length = out->first_tile[rank + 1] - out->first_tile[rank], total = blocks * length;
      for (int pair = 0; pair < INT2_FEW_PAIRS; pair++) {
        int begin = total * pair / INT2_FEW_PAIRS, end = total * (pair + 1) / INT2_FEW_PAIRS;
        if (begin < end && begin < (block + 1) * length && end > block * length)
          out->parts[count++] = (uint16_t)(256 * rank + pair * out->slots + block - out->first_block[rank][pair]);
      }
    }
  }
  out->first_part[blocks] = (int16_t)count;
  out->part_count = count;
  /* x, and what sums start from, twice; see int2_few.cuh. */
  int64_t x_bytes = (int64_t)longest * config->columns * (2 * GEMM_GROUP + 8);
  out->x_bytes = (int)x_bytes;
  int64_t bytes =
      x_bytes + (config->ahead + 1) * RING_BYTES + (int64_t)INT2_FEW_PAIRS * out->slots * slot_bytes(config);
  out->shared_bytes = (int)bytes;
  return bytes <= SHARED_MOST - 2048;
}

/* Thousands of clock cycles, fitted to an H200: reading x from L2, tiles of the busiest pair of warps, joining the sums
 * of a cluster, and what every block begins and ends with. */
static double cost(const struct int2_few_config *config, const struct int2_few_plan *plan, int sms) {
  int longest = (plan->tiles + config->split_k - 1) / config->split_k;
  int tiles = (config->blocks * longest + INT2_FEW_PAIRS - 1) / INT2_FEW_PAIRS;
  int fit = (int)clusters_usable(sms, config->split_k) / config->split_k, waves = (plan->clusters + fit - 1) / fit;
  double per_tile = config->columns == 8 ? 1.1 : 1.52, x = longest * config->columns * 256 / 68e3;
  double join = config->split_k > 1 ? 0.9 + 0.1 * config->split_k : 0;
  return waves * (4 + x + tiles * per_tile + join);
}

/* A longer ring is worth a little where a block lives long. */
static double rank(const struct int2_few_config *config, const struct int2_few_plan *plan, int sms) {
  return cost(config, plan, sms) * (config->ahead == 3 && config->blocks > 4 ? 0.99 : 1);
}

int int2_few_candidates(int columns, int64_t n, int64_t k, int sms, struct int2_few_config *out, int most) {
  double ranks[INT2_FEW_CONFIGS];
  struct int2_few_plan plan;
  int count = 0;
  most = most < INT2_FEW_CONFIGS ? most : INT2_FEW_CONFIGS;
  for (int split = 1; split <= INT2_FEW_SPLIT_MOST; split *= 2)
    for (int blocks = 1; blocks <= INT2_FEW_BLOCKS_MOST; blocks++)
      for (int ahead = 2; ahead <= 3; ahead++) {
        struct int2_few_config config = {.columns = columns, .split_k = split, .blocks = blocks, .ahead = ahead};
        if (int2_few_plan_for(&config, n, k, &plan))
          count = ranking_insert(out, ranks, sizeof *out, count, most, &config, rank(&config, &plan, sms));
      }
  return count;
}

static bool way_find(int columns, int64_t n, int64_t k, int sms, struct int2_few_way *out) {
  return int2_few_candidates(columns, n, k, sms, &out->config, 1) == 1 &&
         int2_few_plan_for(&out->config, n, k, &out->plan);
}

bool int2_few_ways_find(int64_t n, int64_t k, int sms, struct int2_few_way out[INT2_FEW_WAYS]) {
  return way_find(8, n, k, sms, &out[0]) && way_find(16, n, k, sms, &out[1]);
}

int64_t int2_few_rows_most(enum gemm_type x_type) {
  return x_type == GEMM_F32 ? INT2_FEW_COLUMNS_MOST / 2 : INT2_FEW_COLUMNS_MOST;
}

int int2_few_columns(enum gemm_type x_type, int64_t m) {
  int64_t most = int2_few_rows_most(x_type), rows = m < most ? m : most;
  return (x_type == GEMM_F32 ? 2 * rows : rows) > INT2_FEW_COLUMNS_MOST / 2 ? INT2_FEW_COLUMNS_MOST
                                                                            : INT2_FEW_COLUMNS_MOST / 2;
}
