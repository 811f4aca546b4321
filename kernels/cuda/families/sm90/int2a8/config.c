#include "config.h"
#include "../../../heuristics/clusters.h"
#include "../../../heuristics/ranking.h"
#include "../int2/a8_layout.h"

#include <string.h>

/* Of a block's shared memory, 4 KiB are for what is not counted here. */
enum { SHARED_MOST = 223 * 1024, RING_BYTES = INT2A8_GROUPS * INT2A8_TILE_BYTES, STAGES_LEAST = 2 };

/* Bytes of a block's sums as int2_few/kernel.cuh keeps them: [rows][68] f32. */
static int slot_bytes(const struct int2a8_config *config) {
  return 8 * config->eights * (INT2A8_BLOCK_ROWS + 4) * 4;
}

bool int2a8_plan_for(const struct int2a8_config *config, int64_t n, int64_t k, struct int2a8_plan *out) {
  int64_t tiles = (k + INT2A8_TILE_K - 1) / INT2A8_TILE_K, row_blocks = (n + INT2A8_BLOCK_ROWS - 1) / INT2A8_BLOCK_ROWS;
  memset(out, 0, sizeof *out);
  if (!int2_cut_make(row_blocks, tiles, config->split_k, 2 * config->blocks, INT2A8_GROUPS, &out->cut))
    return false;
  int64_t longest = (tiles + config->split_k - 1) / config->split_k;
  int64_t x_bytes = longest * (INT2A8_TILE_K / GEMM_GROUP) * config->eights * INT2A8_GROUP_BYTES;
  int64_t bytes = x_bytes + (int64_t)out->cut.slots * slot_bytes(config);
  int64_t stages = (SHARED_MOST - bytes) / RING_BYTES,
          most = (config->blocks * longest + INT2A8_GROUPS - 1) / INT2A8_GROUPS;
  most = most < STAGES_LEAST ? STAGES_LEAST : most > INT2A8_STAGES_MOST ? INT2A8_STAGES_MOST : most;
  out->stages = (int)(stages < most ? stages : most);
  out->x_bytes = (int)x_bytes;
  out->shared_bytes = (int)(bytes + out->stages * RING_BYTES);
  return bytes <= SHARED_MOST && out->stages >= STAGES_LEAST;
}

/* Thousands of clock cycles, fitted to an H200: what every block begins and ends with, reading x from L2, tiles of the
 * busiest warpgroup, joining the sums of a cluster, and writing y. Short rings do not hide the latency of memory. */
static double cost(const struct int2a8_config *config, const struct int2a8_plan *plan, int sms) {
  static const struct {
    double fixed, x, tile, join[4], write; /* join: of clusters of 1, 2, 4, 8 blocks */
  } of[] = {{3.1, 0.043, 0.82, {0, 1.1, 1.5, 2.5}, 0.41},
            {4.5, 0.062, 1.09, {0, 0.9, 1.3, 3.5}, 0.49},
            {10, 0, 1.33, {0, 0.9, 2.5, 5.7}, 2.2}};
  int split = config->split_k, longest = ((int)plan->cut.tiles + split - 1) / split, width = config->eights / 2;
  int tiles = (config->blocks * longest + INT2A8_GROUPS - 1) / INT2A8_GROUPS;
  int fit = (int)clusters_usable(sms, split) / split, waves = ((int)plan->cut.clusters + fit - 1) / fit;
  bool starved = width == 0 && plan->stages < 6 && tiles > 2 * plan->stages;
  return waves * (of[width].fixed + of[width].x * longest + tiles * of[width].tile * (starved ? 1.15 : 1) +
                  of[width].join[plan->cut.split_log2] + of[width].write * config->blocks / split);
}

double int2a8_us(const struct int2a8_config *config, const struct int2a8_plan *plan, int sms) {
  return cost(config, plan, sms) / INT2_GHZ;
}

int int2a8_candidates(int eights, int64_t n, int64_t k, int sms, struct int2a8_config *out, int most) {
  double costs[INT2A8_CONFIGS];
  struct int2a8_plan plan;
  int count = 0;
  most = most < INT2A8_CONFIGS ? most : INT2A8_CONFIGS;
  for (int split = 1; split <= INT2_CUT_SPLIT_MOST; split *= 2)
    for (int blocks = 1; blocks <= INT2_CUT_BLOCKS_MOST; blocks++) {
      struct int2a8_config config = {.eights = eights, .split_k = split, .blocks = blocks};
      if (int2a8_plan_for(&config, n, k, &plan))
        count = ranking_insert(out, costs, sizeof *out, count, most, &config, cost(&config, &plan, sms));
    }
  return count;
}

static bool way_find(int eights, int64_t n, int64_t k, int sms, struct int2a8_way *out) {
  return int2a8_candidates(eights, n, k, sms, &out->config, 1) == 1 && int2a8_plan_for(&out->config, n, k, &out->plan);
}

bool int2a8_ways_find(int64_t n, int64_t k, int sms, struct int2a8_way out[INT2A8_WAYS]) {
  for (int way = 0; way < INT2A8_WAYS; way++) {
    if (!way_find(1 << way, n, k, sms, &out[way]))
      return false;
  }
  return true;
}

const struct int2a8_way *int2a8_way_for(const struct int2a8_way ways[INT2A8_WAYS], int64_t m) {
  int way = 0;
  while (way < INT2A8_WAYS - 1 && m > 8 * ways[way].config.eights)
    way++;
  return &ways[way];
}
