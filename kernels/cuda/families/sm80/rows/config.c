#include "config.h"

#include "../../../heuristics/ranking.h"
#include "../rates.h"

#include <math.h>
#include <string.h>

enum { SHARED_OF_BLOCK = 1024 /* that a block takes of a multiprocessor beside what it asks for */ };

struct tile {
  int columns, rows;
  int warps, matrices; /* of each warp, four of 8 x 16 bytes at a time, that it reads for 32 bytes of K */
  int resident;        /* blocks a multiprocessor, at most */
  bool fp8;
};

static const struct tile tiles[] = {
#define ROW(columns, rows, x, w, x_warps, w_warps, resident, fp8)                                                      \
  {columns, rows, (x_warps) * (w_warps), (x) + (w) / 2, resident, fp8},
    SM80_ROWS_TILES(ROW)
#undef ROW
};
enum { TILES = sizeof tiles / sizeof *tiles };

static int64_t least(int64_t left, int64_t right) {
  return left < right ? left : right;
}

static int64_t ceil_div(int64_t left, int64_t right) {
  return (left + right - 1) / right;
}

bool sm80_rows_takes(const struct kernel_problem *problem) {
  bool fp8 = problem->format == GEMM_FORMAT_FP8 && problem->scale != GEMM_SCALE_BLOCK;
  return problem->device.capability >= 80 && problem->experts == 0 && (fp8 || problem->format == GEMM_FORMAT_INT8) &&
         problem->m < 1 << 20;
}

static const struct tile *tile_of(const struct sm80_rows_config *config, const struct kernel_problem *problem) {
  for (int i = 0; i < TILES; i++)
    if (tiles[i].columns == config->columns && tiles[i].rows == config->rows)
      return tiles[i].fp8 || problem->format == GEMM_FORMAT_INT8 ? &tiles[i] : NULL;
  return NULL;
}

/* Blocks of a multiprocessor at a time. */
static int resident(const struct tile *tile, int blocks, const struct kernel_problem *problem) {
  return (int)least(tile->resident, ceil_div(blocks, problem->device.multiprocessors));
}

uint64_t sm80_rows_parts_bytes(const struct sm80_rows_config *config, const struct sm80_rows_plan *plan) {
  return (uint64_t)config->blocks * (uint64_t)(plan->shares.parts * config->columns * config->rows) * 4;
}

bool sm80_rows_plan_for(const struct sm80_rows_config *config, const struct kernel_problem *problem,
                        struct sm80_rows_plan *out) {
  const struct tile *tile = tile_of(config, problem);
  memset(out, 0, sizeof *out);
  if (!tile || config->blocks < 1 || config->blocks > SM80_ROWS_BLOCKS_MOST)
    return false;
  out->ends = (int)ceil_div(problem->m, tile->columns);
  int64_t all = out->ends * ceil_div(problem->n, tile->rows), steps = ceil_div(problem->k_padded, SM80_ROWS_STEP);
  if (all * steps > INT32_MAX || config->blocks > all * steps)
    return false;
  out->tiles = (int)all;
  out->shares = sm80_shares_of((int)all, (int)steps, config->blocks);
  int slot = (tile->columns + tile->rows) * SM80_ROWS_STEP, beside = resident(tile, config->blocks, problem);
  int room = beside > 1 ? (problem->device.shared_most + SHARED_OF_BLOCK) / beside - SHARED_OF_BLOCK
                        : problem->device.shared_most;
  out->stages = (int)least(room / slot, SM80_ROWS_STAGES_MOST);
  out->shared_bytes = out->stages * slot;
  return out->stages >= SM80_ROWS_STAGES_LEAST && sm80_rows_parts_bytes(config, out) <= problem->device.workspace_bytes;
}

/* Clock cycles in which each of a multiprocessor's blocks takes a step: bounded by memory, by the L2, by shared memory,
 * by matrix instructions, and by the way of a step through all of them, whose powers add up. */
static double step_cycles(const struct tile *tile, const struct sm80_rows_plan *plan, int beside,
                          const struct kernel_problem *problem, const struct sm80_rates *rates, double busy) {
  static const double POWER = 2.6, WAY = 420;
  double w = beside * tile->rows * SM80_ROWS_STEP, x = beside * tile->columns * SM80_ROWS_STEP;
  double memory = w / plan->ends / rates->read * fmax(busy, 0.43), cache = (w + x) / (1.5 * rates->cache) * busy;
  double shared = beside * tile->warps * 4 * tile->matrices * 4 + (w + x) / 128;
  double each = problem->format == GEMM_FORMAT_FP8 ? 2 * rates->halves + 3 : rates->multiply;
  double instructions = beside * SM80_ROWS_STEP / 32 * (tile->columns / 16.0) * (tile->rows / 8.0) / 4 * each;
  return pow(pow(memory, POWER) + pow(cache, POWER) + pow(shared, POWER) + pow(instructions, POWER) + pow(WAY, POWER),
             1 / POWER);
}

/* Fitted to an H200. */
double sm80_rows_us(const struct sm80_rows_config *config, const struct sm80_rows_plan *plan,
                    const struct kernel_problem *problem) {
  struct sm80_rates rates = sm80_rates_of(problem->device.capability);
  const struct tile *tile = tile_of(config, problem);
  int beside = resident(tile, config->blocks, problem), places = beside * problem->device.multiprocessors;
  double busy = fmin(1, (double)config->blocks / problem->device.multiprocessors);
  int64_t each = ceil_div((int64_t)plan->tiles * plan->shares.steps, config->blocks);
  double rounds = (double)ceil_div(config->blocks, places), ends = (double)ceil_div(each, plan->shares.steps);
  double area = tile->columns * tile->rows, bytes = (double)sm80_rows_parts_bytes(config, plan);
  double parts = bytes > 0 ? 3500 + bytes / (rates.cache * problem->device.multiprocessors) : 0;
  return (4400 + parts + rounds * ends * 0.35 * area +
          rounds * (double)each * step_cycles(tile, plan, beside, problem, &rates, busy)) /
         rates.ghz / 1000;
}

/* Columns behind M are for nothing: of tiles with more of them than another has the smallest is enough. */
static bool wasteful(const struct tile *tile, const struct kernel_problem *problem) {
  return tile->columns > 16 && tile->columns >= 2 * problem->m;
}

/* Counts of blocks that are worth a try: so many as run at once, or fewer that have the same share of a tile each. */
enum { COUNTS = 6 };
static void block_counts(const struct tile *tile, const struct kernel_problem *problem, int64_t out[COUNTS]) {
  int64_t places = problem->device.multiprocessors, most = places * tile->resident;
  int64_t all = ceil_div(problem->m, tile->columns) * ceil_div(problem->n, tile->rows);
  int64_t units = all * ceil_div(problem->k_padded, SM80_ROWS_STEP);
  const int64_t counts[COUNTS] = {places, most, all, places / all * all, places / all / 2 * all, most / all * all};
  for (int i = 0; i < COUNTS; i++) {
    out[i] = least(least(counts[i], units), SM80_ROWS_BLOCKS_MOST);
    for (int before = 0; before < i; before++)
      out[i] = out[i] == out[before] ? 0 : out[i];
  }
}

int sm80_rows_candidates(const struct kernel_problem *problem, struct sm80_rows_config *out, int most) {
  double costs[SM80_ROWS_CONFIGS];
  int count = 0;
  most = most < SM80_ROWS_CONFIGS ? most : SM80_ROWS_CONFIGS;
  for (const struct tile *tile = tiles; tile < tiles + TILES; tile++) {
    int64_t blocks[COUNTS];
    block_counts(tile, problem, blocks);
    for (int i = 0; i < COUNTS && !wasteful(tile, problem); i++) {
      struct sm80_rows_config config = {.columns = tile->columns, .rows = tile->rows, .blocks = (int)blocks[i]};
      struct sm80_rows_plan plan;
      if (sm80_rows_plan_for(&config, problem, &plan))
        count = ranking_insert(out, costs, sizeof *out, count, most, &config, sm80_rows_us(&config, &plan, problem));
    }
  }
  return count;
}
