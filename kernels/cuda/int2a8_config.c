#include "int2a8_config.h"
#include "clusters.h"
#include "int2a8_layout.h"
#include "ranking.h"

#include <string.h>

/* Of a block's shared memory, 4 KiB are for what is not counted here. */
enum { SHARED_MOST = 223 * 1024, RING_BYTES = INT2A8_GROUPS * INT2A8_TILE_BYTES, STAGES_LEAST = 2 };

/* Bytes of a block's sums as int2_few.cuh keeps them: [rows][68] f32. */
static int slot_bytes(const struct int2a8_config *config) {
  return 8 * config->eights * (INT2A8_BLOCK_ROWS + 4) * 4;
}

/* Blocks of rows that a warpgroup works on, at most, where a block of the cluster has `tiles` of each. */
static int slots_of(int blocks, int tiles) {
  int slots = 0, total = blocks * tiles;
  for (int group = 0; group < INT2A8_GROUPS; group++) {
    int begin = total * group / INT2A8_GROUPS, end = total * (group + 1) / INT2A8_GROUPS;
    int spans = begin < end ? (end - 1) / tiles - begin / tiles + 1 : 0;
    slots = spans > slots ? spans : slots;
  }
  return slots;
}

bool int2a8_plan_for(const struct int2a8_config *config, int64_t n, int64_t k, struct int2a8_plan *out) {
  int split = config->split_k, blocks = config->blocks;
  memset(out, 0, sizeof *out);
  out->tiles = (int)((k + INT2A8_TILE_K - 1) / INT2A8_TILE_K);
  out->row_blocks = (int)((n + INT2A8_BLOCK_ROWS - 1) / INT2A8_BLOCK_ROWS);
  if (split < 1 || split > INT2A8_SPLIT_MOST || (split & (split - 1)) != 0 || split > out->tiles || blocks < 1 ||
      blocks > INT2A8_BLOCKS_MOST)
    return false;
  out->clusters = (out->row_blocks + blocks - 1) / blocks;
  int shortest = out->tiles / split, longest = (out->tiles + split - 1) / split;
  out->slots = slots_of(blocks, shortest);
  if (slots_of(blocks, longest) > out->slots)
    out->slots = slots_of(blocks, longest);
  int64_t x_bytes = (int64_t)longest * (INT2A8_TILE_K / GEMM_GROUP) * config->eights * INT2A8_GROUP_BYTES;
  int64_t bytes = x_bytes + (int64_t)INT2A8_GROUPS * out->slots * slot_bytes(config);
  int64_t stages = (SHARED_MOST - bytes) / RING_BYTES, most = (blocks * longest + INT2A8_GROUPS - 1) / INT2A8_GROUPS;
  most = most < STAGES_LEAST ? STAGES_LEAST : most > INT2A8_STAGES_MOST ? INT2A8_STAGES_MOST : most;
  out->stages = (int)(stages < most ? stages : most);
  out->x_bytes = (int)x_bytes;
  out->shared_bytes = (int)(bytes + out->stages * RING_BYTES);
  return bytes <= SHARED_MOST && out->stages >= STAGES_LEAST;
}

/* Thousands of clock cycles, fitted to an H200: what every block begins with, reading x from L2, tiles of the busiest
 * warpgroup, joining the sums of a cluster, and writing y. */
static double cost(const struct int2a8_config *config, const struct int2a8_plan *plan, int sms) {
  int split = config->split_k, longest = (plan->tiles + split - 1) / split;
  int tiles = (config->blocks * longest + INT2A8_GROUPS - 1) / INT2A8_GROUPS;
  int fit = (int)clusters_usable(sms, split) / split, waves = (plan->clusters + fit - 1) / fit;
  double per_tile = config->eights == 1 ? 1.04 : config->eights == 2 ? 1.2 : 1.9;
  double x = 0.06 * longest * config->eights, join = split == 1   ? 0
                                                     : split == 2 ? 0.7
                                                     : split == 4 ? 2
                                                                  : 3 + 0.75 * config->eights;
  double write = 0.2 * config->eights * config->blocks / split;
  return waves * (8.5 + x + tiles * per_tile + join + write);
}

int int2a8_candidates(int eights, int64_t n, int64_t k, int sms, struct int2a8_config *out, int most) {
  double costs[INT2A8_CONFIGS];
  struct int2a8_plan plan;
  int count = 0;
  most = most < INT2A8_CONFIGS ? most : INT2A8_CONFIGS;
  for (int split = 1; split <= INT2A8_SPLIT_MOST; split *= 2)
    for (int blocks = 1; blocks <= INT2A8_BLOCKS_MOST; blocks++) {
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
