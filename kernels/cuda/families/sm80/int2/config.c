#include "config.h"

#include "../../../heuristics/ranking.h"
#include "../rates.h"

#include <math.h>
#include <string.h>

enum {
  UNIT_ROWS = 16,
  INT2_ROWS = 64, /* of a tile of W */
  SHARED_FIXED = 1024,
};

enum gemm_type sm80_int2_x_type(const struct kernel_problem *problem) {
  return problem->format == GEMM_FORMAT_INT2A8 ? GEMM_INT8 : problem->x_type;
}

int sm80_int2_groups(enum gemm_type x_type) {
  return x_type == GEMM_F32 ? 1 : SM80_INT2_GROUPS;
}

int sm80_int2_columns(int64_t m) {
  return m <= 8 ? 8 : m <= 16 ? 16 : m <= 32 ? 32 : SM80_INT2_COLUMNS_MOST;
}

int64_t sm80_int2_rows_most(const struct kernel_problem *problem) {
  return sm80_int2_x_type(problem) == GEMM_F32 ? SM80_INT2_F32_MOST : SM80_INT2_COLUMNS_MOST;
}

int sm80_int2_warps_most(int columns, int units) {
  int few = columns > 16 ? 12 : SM80_INT2_WARPS_MOST;
  return columns * units > SM80_INT2_COLUMNS_MOST ? 8 : few;
}

bool sm80_int2_takes(const struct kernel_problem *problem) {
  return problem->device.capability >= 80 && gemm_is_int2(problem->format) && problem->tiled && problem->experts == 0;
}

/* Those that launch.cu has a kernel for. */
static bool has_units(enum gemm_type x_type, int columns, int units) {
  return units == 2 || (x_type != GEMM_F32 && ((units == 4 && columns == 8) || (units == 1 && columns > 32)));
}

static int least(int left, int right) {
  return left < right ? left : right;
}

static int ceil_div(int64_t left, int64_t right) {
  return (int)((left + right - 1) / right);
}

static int64_t padded(int64_t n) {
  return (n + INT2_ROWS - 1) / INT2_ROWS * INT2_ROWS;
}

uint64_t sm80_int2_parts_bytes(const struct sm80_int2_config *config, const struct kernel_problem *problem, int64_t m) {
  return config->split_k > 1 ? (uint64_t)(config->split_k * m * padded(problem->n)) * sizeof(float) : 0;
}

bool sm80_int2_plan_for(const struct sm80_int2_config *config, const struct kernel_problem *problem, int64_t m,
                        struct sm80_int2_plan *out) {
  enum gemm_type x_type = sm80_int2_x_type(problem);
  int rows = config->n_warps * config->units * UNIT_ROWS, warps = config->n_warps * config->k_warps;
  int64_t groups = problem->k_padded / GEMM_GROUP;
  int each = sm80_int2_groups(x_type);
  memset(out, 0, sizeof *out);
  out->columns = sm80_int2_columns(m);
  if (config->n_warps < 1 || config->k_warps < 1 || config->split_k < 1 ||
      warps > sm80_int2_warps_most(out->columns, config->units) || !has_units(x_type, out->columns, config->units) ||
      (config->n_warps > 1 && config->k_warps > 15))
    return false;
  out->slice = ceil_div(groups, config->split_k);
  out->row_blocks = ceil_div(padded(problem->n), rows);
  int places = problem->device.multiprocessors / config->split_k;
  out->blocks = least(out->row_blocks, places > 1 ? places : 1);
  out->x_row_bytes = each * GEMM_GROUP * gemm_type_bytes(x_type) + SM80_INT2_PADDING;
  out->slot_bytes = (int)m * out->x_row_bytes + config->n_warps * config->units * each * SM80_INT2_UNIT_BYTES;
  out->sums_bytes = config->k_warps * (int)m * (rows * 4 + SM80_INT2_PADDING);
  int steps = ceil_div(out->slice, config->k_warps * each), all = steps * ceil_div(out->row_blocks, out->blocks);
  int fit = (problem->device.shared_most - SHARED_FIXED - out->sums_bytes) / (config->k_warps * out->slot_bytes);
  out->stages = least(least(fit, SM80_INT2_STAGES_MOST), all + 1 > 2 ? all + 1 : 2);
  out->shared_bytes = config->k_warps * out->stages * out->slot_bytes + out->sums_bytes;
  bool parts = sm80_int2_parts_bytes(config, problem, m) <= problem->device.workspace_bytes &&
               out->slice * (int64_t)(config->split_k - 1) < groups;
  return out->sums_bytes < problem->device.shared_most && out->stages >= SM80_INT2_STAGES_LEAST && parts;
}

bool sm80_int2_fits(const struct sm80_int2_config *config, const struct kernel_problem *problem) {
  int64_t most = sm80_int2_rows_most(problem), rest = problem->m % most;
  struct sm80_int2_plan plan;
  return (problem->m < most || sm80_int2_plan_for(config, problem, most, &plan)) &&
         (rest == 0 || sm80_int2_plan_for(config, problem, rest, &plan));
}

/* Clock cycles for a group of each of a block's teams: bounded by memory, which multiprocessors share, by the L2, by
 * instructions, of which some make numbers of codes, and by shared memory, whose powers add up. */
static double group_cycles(const struct sm80_int2_config *config, const struct sm80_int2_plan *plan,
                           const struct kernel_problem *problem, int64_t m, const struct sm80_rates *rates) {
  static const double POWER = 3.96;
  enum gemm_type x_type = sm80_int2_x_type(problem);
  bool bytes = x_type == GEMM_INT8;
  int warps = config->n_warps * config->k_warps, units = config->units, eights = plan->columns / 8;
  double x_bytes = GEMM_GROUP * gemm_type_bytes(x_type), w = (double)warps * units * SM80_INT2_UNIT_BYTES;
  double x = (double)config->k_warps * (double)m * x_bytes;
  double busy = (double)plan->blocks * config->split_k / problem->device.multiprocessors;
  double memory = w / rates->memory * fmax(busy, 0.74), cache = (w + x) / rates->cache;
  double each = bytes ? 4 * rates->bytes : 8 * rates->halves * (x_type == GEMM_F32 ? 2 : 1);
  double instructions = units * (127 + eights * (each + 11.7)), issued = ceil_div(warps, 4) * instructions;
  double loads = (w + warps * plan->columns * x_bytes) / 128;
  double sum = pow(memory, POWER) + pow(cache, POWER) + pow(issued, POWER) + pow(loads, POWER);
  return pow(sum, 1 / POWER) + 0.31 * instructions;
}

/* Microseconds of a go. Fitted to an H200: 14 % off (root mean square), its pick 3 % slower than the best. */
static double cost(const struct sm80_int2_config *config, const struct sm80_int2_plan *plan,
                   const struct kernel_problem *problem, int64_t m) {
  struct sm80_rates rates = sm80_rates_of(problem->device.capability);
  int each = sm80_int2_groups(sm80_int2_x_type(problem));
  int rounds = ceil_div(plan->row_blocks, plan->blocks), turns = ceil_div(plan->slice, config->k_warps * each);
  int rows = config->n_warps * config->units * UNIT_ROWS;
  double sums = (double)rows * (double)m * (2 + config->k_warps) / 64 + 490;
  double parts = config->split_k > 1 ? 2100 + (double)m * (double)problem->n * 4 * config->split_k /
                                                  (rates.cache * problem->device.multiprocessors)
                                     : 0;
  double turn = 446 + 17.0 / (plan->stages - 1) + each * group_cycles(config, plan, problem, m, &rates);
  return (5240 + parts + rounds * (sums + turns * turn)) / rates.ghz / 1000;
}

double sm80_int2_us(const struct sm80_int2_config *config, const struct kernel_problem *problem) {
  int64_t most = sm80_int2_rows_most(problem), rest = problem->m % most, full = problem->m / most;
  struct sm80_int2_plan plan;
  double us = 0;
  if (full > 0 && sm80_int2_plan_for(config, problem, most, &plan))
    us += (double)full * cost(config, &plan, problem, most);
  if (rest > 0 && sm80_int2_plan_for(config, problem, rest, &plan))
    us += cost(config, &plan, problem, rest);
  return us;
}

int sm80_int2_candidates(const struct kernel_problem *problem, struct sm80_int2_config *out, int most) {
  double costs[SM80_INT2_CONFIGS];
  struct sm80_int2_plan plan;
  int count = 0;
  int64_t rows = sm80_int2_rows_most(problem), m = problem->m < rows ? problem->m : rows;
  most = most < SM80_INT2_CONFIGS ? most : SM80_INT2_CONFIGS;
  for (int units = 1; units <= SM80_INT2_UNITS_MOST; units *= 2)
    for (int n_warps = 1; n_warps <= SM80_INT2_WARPS_MOST; n_warps++)
      for (int k_warps = 1; k_warps * n_warps <= SM80_INT2_WARPS_MOST; k_warps++)
        for (int split = 1; split <= SM80_INT2_SPLIT_MOST; split *= 2) {
          struct sm80_int2_config config = {.units = units, .n_warps = n_warps, .k_warps = k_warps, .split_k = split};
          if (sm80_int2_fits(&config, problem) && sm80_int2_plan_for(&config, problem, m, &plan))
            count = ranking_insert(out, costs, sizeof *out, count, most, &config, cost(&config, &plan, problem, m));
        }
  return count;
}
