#include "config.h"

#include "../../../heuristics/ranking.h"
#include "../rates.h"

#include <math.h>
#include <string.h>

enum {
  ROWS = 16 * SM80_ROWS_UNITS, /* of W a warp */
  SHARED_FIXED = 1024,
  SUMS_PADDING = 4, /* numbers behind a column of sums */
};

static int least(int64_t left, int64_t right) {
  return (int)(left < right ? left : right);
}

static int ceil_div(int64_t left, int64_t right) {
  return (int)((left + right - 1) / right);
}

bool sm80_rows_takes(const struct kernel_problem *problem) {
  bool fp8 = problem->format == GEMM_FORMAT_FP8 && problem->scale != GEMM_SCALE_BLOCK;
  return problem->device.capability >= 80 && problem->experts == 0 && (fp8 || problem->format == GEMM_FORMAT_INT8) &&
         problem->m < 1 << 20;
}

/* As many as there are registers for. */
static int warps_most(int columns) {
  return columns > 64 ? 8 : columns > 32 ? 12 : SM80_ROWS_WARPS_MOST;
}

uint64_t sm80_rows_parts_bytes(const struct sm80_rows_config *config, const struct kernel_problem *problem) {
  uint64_t each = (uint64_t)problem->m * gemm_round_up((uint64_t)problem->n, 4) * 4;
  return config->split_k > 1 ? (uint64_t)config->split_k * each : 0;
}

bool sm80_rows_plan_for(const struct sm80_rows_config *config, const struct kernel_problem *problem,
                        struct sm80_rows_plan *out) {
  int n_warps = config->n_warps, k_warps = config->k_warps, split_k = config->split_k, columns = config->columns;
  int most = problem->format == GEMM_FORMAT_INT8 ? SM80_ROWS_COLUMNS_MOST : SM80_ROWS_COLUMNS_MOST / 2;
  bool power = columns >= 16 && columns <= most && (columns & (columns - 1)) == 0;
  memset(out, 0, sizeof *out);
  if (!power || n_warps < 1 || k_warps < 1 || split_k < 1 || n_warps * k_warps > warps_most(columns) ||
      (n_warps > 1 && k_warps > 15))
    return false;
  int steps = ceil_div(problem->k_padded, SM80_ROWS_STEP), rows = n_warps * ROWS, m = least(columns, problem->m);
  out->row_tiles = ceil_div(problem->n, rows);
  out->tiles = out->row_tiles * ceil_div(problem->m, columns);
  out->slice = ceil_div(steps, split_k);
  int places = problem->device.multiprocessors / split_k;
  out->blocks = least(out->tiles, places > 1 ? places : 1);
  out->slot_bytes = (m + rows) * SM80_ROWS_PITCH;
  out->sums_bytes = k_warps * m * (rows + SUMS_PADDING) * 4;
  int all = ceil_div(out->slice, k_warps) * ceil_div(out->tiles, out->blocks);
  int fit = (problem->device.shared_most - SHARED_FIXED - out->sums_bytes) / (k_warps * out->slot_bytes);
  out->stages = least(least(fit, SM80_ROWS_STAGES_MOST), all + 1);
  out->shared_bytes = k_warps * out->stages * out->slot_bytes + out->sums_bytes;
  return out->sums_bytes < problem->device.shared_most && out->stages >= SM80_ROWS_STAGES_LEAST &&
         out->slice * (int64_t)(split_k - 1) < steps &&
         sm80_rows_parts_bytes(config, problem) <= problem->device.workspace_bytes;
}

/* Clock cycles of a turn, in which each of a block's teams takes a step: bounded by memory, which multiprocessors
 * share, by the L2, by matrix instructions, and by shared memory, whose powers add up. The fewer stages, the longer is
 * waited for copies. */
static double turn_cycles(const struct sm80_rows_config *config, const struct sm80_rows_plan *plan,
                          const struct kernel_problem *problem, const struct sm80_rates *rates) {
  static const double POWER = 3.45;
  int warps = config->n_warps * config->k_warps, m = least(config->columns, problem->m);
  bool fp8 = problem->format == GEMM_FORMAT_FP8;
  double w = (double)warps * ROWS * SM80_ROWS_STEP, x = (double)config->k_warps * m * SM80_ROWS_STEP;
  double busy = (double)plan->blocks * config->split_k / problem->device.multiprocessors;
  double again = pow(ceil_div(problem->m, config->columns), 0.74); /* blocks that want the same rows of W share them */
  double memory = w / again / rates->memory * fmax(busy, 0.43), cache = (w + x) / rates->cache;
  double each = fp8 ? 2 * rates->halves + 3 : rates->bytes, schedulers = ceil_div(warps, 4);
  double instructions = SM80_ROWS_STEP / 32 * SM80_ROWS_UNITS * (config->columns / 8.0) * each;
  double loads = warps * (double)(ROWS + config->columns);
  double sum = pow(memory, POWER) + pow(cache, POWER) + pow(schedulers * instructions, POWER) + pow(loads, POWER);
  return pow(sum, 1 / POWER) + 0.44 * instructions + 161 + 148.0 / (plan->stages - 1);
}

/* Fitted to an H200: 19 % off (root mean square), its pick 3 % slower than the best of INT8. */
double sm80_rows_us(const struct sm80_rows_config *config, const struct sm80_rows_plan *plan,
                    const struct kernel_problem *problem) {
  struct sm80_rates rates = sm80_rates_of(problem->device.capability);
  int rounds = ceil_div(plan->tiles, plan->blocks), turns = ceil_div(plan->slice, config->k_warps);
  int m = least(config->columns, problem->m);
  double sums = (double)config->n_warps * ROWS * m * (2 + config->k_warps) / 64 + 722;
  double parts = config->split_k > 1 ? 3020 + (double)problem->m * (double)problem->n * 4 * config->split_k /
                                                  (rates.cache * problem->device.multiprocessors)
                                     : 0;
  return (3760 + parts + rounds * (sums + turns * turn_cycles(config, plan, problem, &rates))) / rates.ghz / 1000;
}

int sm80_rows_candidates(const struct kernel_problem *problem, struct sm80_rows_config *out, int most) {
  double costs[SM80_ROWS_CONFIGS];
  struct sm80_rows_plan plan;
  int count = 0;
  most = most < SM80_ROWS_CONFIGS ? most : SM80_ROWS_CONFIGS;
  for (int columns = 16; columns <= SM80_ROWS_COLUMNS_MOST && (columns == 16 || columns / 2 < problem->m); columns *= 2)
    for (int n_warps = 1; n_warps <= SM80_ROWS_WARPS_MOST; n_warps++)
      for (int k_warps = 1; k_warps * n_warps <= SM80_ROWS_WARPS_MOST; k_warps++)
        for (int split = 1; split <= SM80_ROWS_SPLIT_MOST; split *= 2) {
          struct sm80_rows_config config = {
              .columns = columns, .n_warps = n_warps, .k_warps = k_warps, .split_k = split};
          if (sm80_rows_plan_for(&config, problem, &plan))
            count =
                ranking_insert(out, costs, sizeof *out, count, most, &config, sm80_rows_us(&config, &plan, problem));
        }
  return count;
}
