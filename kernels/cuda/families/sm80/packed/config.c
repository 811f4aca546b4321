#include "config.h"

#include "../../../heuristics/ranking.h"
#include "../rates.h"

#include <math.h>
#include <string.h>

enum {
  UNIT_ROWS = 16,
  TILE_ROWS = 64, /* of W */
  SHARED_FIXED = 1024,
  SHARED_MUCH = 128 << 10,
  BLOCK_COUNTS = 8,
  ROW_BLOCKS_MOST = 65535, /* the second dimension of a launch */
};

/* Which of INT2 and f16 x have four units of 16 rows of W for 33 to 64 rows. */
static bool is_folded(const struct kernel_problem *problem, int columns, int units) {
  return problem->format == GEMM_FORMAT_INT2 && problem->x_type == GEMM_F16 && columns > 32 && units == 4;
}

/* Groups of K of a team's turn. */
static int groups_of(const struct kernel_problem *problem, bool folded) {
  return folded || kernel_problem_x_type(problem) == GEMM_F32 ? 1 : SM80_PACKED_GROUPS;
}

int sm80_packed_columns(int64_t m) {
  return m <= 8 ? 8 : m <= 16 ? 16 : m <= 32 ? 32 : SM80_PACKED_COLUMNS_MOST;
}

/* With little shared memory more rows leave room for so few warps that two goes take half of the time of one. */
int64_t sm80_packed_rows_most(const struct kernel_problem *problem) {
  if (kernel_problem_x_type(problem) == GEMM_F32)
    return SM80_PACKED_F32_MOST;
  return problem->device.shared_most < SHARED_MUCH ? SM80_PACKED_COLUMNS_MOST / 2 : SM80_PACKED_COLUMNS_MOST;
}

/* Of a block: as many as there are registers for. */
static int warps_most(int columns, int units) {
  return columns * units > 64 ? 8 : columns * units > 32 ? 12 : SM80_PACKED_WARPS_MOST;
}

bool sm80_packed_takes(const struct kernel_problem *problem) {
  bool four = int4_form_keeps_x(problem->format) && !gemm_scale_facts(problem->scale)->zeros_f16;
  return problem->device.capability >= 80 && problem->tiled && problem->experts == 0 &&
         (gemm_is_int2(problem->format) || four);
}

/* Those that there is a kernel for. */
static bool has_units(const struct kernel_problem *problem, int columns, int units) {
  bool others = gemm_is_int2(problem->format) && kernel_problem_x_type(problem) != GEMM_F32;
  return units == 2 || (others && units == (columns > 32 ? 1 : 4)) || is_folded(problem, columns, units);
}

/* Of W, that a warp with so many units has of a group. */
static int group_bytes(const struct kernel_problem *problem, int units) {
  if (gemm_is_int2(problem->format))
    return units * SM80_PACKED_INT2_BYTES;
  return units / 2 * int4_form_of(problem->format, problem->scale).half_bytes;
}

static int least(int left, int right) {
  return left < right ? left : right;
}

static int ceil_div(int64_t left, int64_t right) {
  return (int)((left + right - 1) / right);
}

static int64_t padded(int64_t n) {
  return (n + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
}

uint64_t sm80_packed_parts_bytes(const struct sm80_packed_plan *plan, int64_t m) {
  return (uint64_t)plan->blocks * (uint64_t)plan->shares.parts * (uint64_t)m * (uint64_t)plan->rows * sizeof(float);
}

bool sm80_packed_plan_for(const struct sm80_packed_config *config, const struct kernel_problem *problem, int64_t m,
                          struct sm80_packed_plan *out) {
  enum gemm_type x_type = kernel_problem_x_type(problem);
  int rows = config->n_warps * config->units * UNIT_ROWS, warps = config->n_warps * config->k_warps;
  memset(out, 0, sizeof *out);
  out->columns = sm80_packed_columns(m);
  out->folded = is_folded(problem, out->columns, config->units);
  out->groups = groups_of(problem, out->folded);
  if (out->folded && (config->k_warps > 1 || config->n_warps < SM80_PACKED_FOLDED_WARPS))
    return false;
  if (config->n_warps < 1 || config->k_warps < 1 || config->blocks < 1 ||
      warps > warps_most(out->columns, config->units) || !has_units(problem, out->columns, config->units) ||
      (config->n_warps > 1 && config->k_warps > 15))
    return false;
  out->rows = rows;
  out->row_blocks = ceil_div(padded(problem->n), rows);
  int steps = ceil_div(problem->k_padded / GEMM_GROUP, config->k_warps * out->groups);
  int64_t all = (int64_t)out->row_blocks * steps;
  if (config->blocks > all || all > INT32_MAX || out->row_blocks > ROW_BLOCKS_MOST)
    return false;
  if (!gemm_is_int2(problem->format))
    out->form = int4_form_of(problem->format, problem->scale);
  out->blocks = config->blocks;
  out->shares = sm80_shares_of(out->row_blocks, steps, config->blocks);
  out->x_row_bytes = out->groups * GEMM_GROUP * gemm_type_bytes(x_type) + SM80_PACKED_PADDING;
  out->slot_bytes = (int)m * out->x_row_bytes + config->n_warps * out->groups * group_bytes(problem, config->units);
  out->sums_bytes = out->folded ? 0 : config->k_warps * (int)m * (rows * 4 + SM80_PACKED_PADDING);
  int fit = (problem->device.shared_most - SHARED_FIXED - out->sums_bytes) / (config->k_warps * out->slot_bytes);
  int turns = ceil_div(all, config->blocks),
      stages = out->folded ? SM80_PACKED_FOLDED_STAGES : SM80_PACKED_STAGES_LEAST;
  out->stages = least(least(fit, SM80_PACKED_STAGES_MOST), turns + 1 > stages ? turns + 1 : stages);
  out->shared_bytes = config->k_warps * out->stages * out->slot_bytes + out->sums_bytes;
  return out->sums_bytes < problem->device.shared_most && out->stages >= stages &&
         sm80_packed_parts_bytes(out, m) <= problem->device.workspace_bytes;
}

bool sm80_packed_fits(const struct sm80_packed_config *config, const struct kernel_problem *problem) {
  int64_t most = sm80_packed_rows_most(problem), rest = problem->m % most;
  struct sm80_packed_plan plan;
  return (problem->m < most || sm80_packed_plan_for(config, problem, most, &plan)) &&
         (rest == 0 || sm80_packed_plan_for(config, problem, rest, &plan));
}

/* Clock cycles of a scheduler for what makes numbers of the codes of a unit and a group; less where a warp reads x for
 * four units at once. */
static double decoding(enum gemm_format format, int columns, int units) {
  switch (format) {
  case GEMM_FORMAT_INT4:
    return 130;
  case GEMM_FORMAT_MXFP4:
    return 310;
  case GEMM_FORMAT_NVFP4:
    return 220;
  default:
    return columns > 8 && units == 4 ? 90 : 112;
  }
}

/* Clock cycles for a group of each of a block's teams: bounded by memory, which multiprocessors share, by the L2, by
 * instructions, of which some make numbers of codes, and by shared memory, whose powers add up. */
static double group_cycles(const struct sm80_packed_config *config, const struct sm80_packed_plan *plan,
                           const struct kernel_problem *problem, int64_t m, const struct sm80_rates *rates) {
  static const double POWER = 8.2;
  enum gemm_type x_type = kernel_problem_x_type(problem);
  bool bytes = x_type == GEMM_INT8;
  int warps = config->n_warps * config->k_warps, units = config->units, eights = plan->columns / 8;
  double x_bytes = GEMM_GROUP * gemm_type_bytes(x_type), w = (double)warps * group_bytes(problem, units);
  double x = (double)config->k_warps * (double)m * x_bytes;
  double busy = fmin(1, (double)config->blocks / problem->device.multiprocessors);
  double read = gemm_is_int2(problem->format) ? rates->memory : rates->read;
  double memory = w / read * fmax(busy, 0.59), cache = (w + x) / rates->cache;
  double each = bytes ? 4 * rates->bytes : 8 * rates->halves * (x_type == GEMM_F32 ? 2 : 1);
  double instructions = units * (decoding(problem->format, plan->columns, units) + eights * each),
         issued = ceil_div(warps, 4) * instructions;
  double loads = 1.21 * (w + warps * plan->columns * x_bytes) / 128;
  double sum = pow(memory, POWER) + pow(cache, POWER) + pow(issued, POWER) + pow(loads, POWER);
  return pow(sum, 1 / POWER) + 0.35 * instructions;
}

/* Microseconds of a go. Fitted to an H200, f16 x: 5 % off (root mean square), its pick 1 % slower than the best. */
static double cost(const struct sm80_packed_config *config, const struct sm80_packed_plan *plan,
                   const struct kernel_problem *problem, int64_t m) {
  struct sm80_rates rates = sm80_rates_of(problem->device.capability);
  double all = (double)plan->row_blocks * plan->shares.steps, each_block = ceil(all / config->blocks);
  double rounds = ceil((double)config->blocks / problem->device.multiprocessors);
  double ends = plan->shares.parts > 0 ? 1 + each_block / plan->shares.steps : each_block / plan->shares.steps;
  double sums = (double)plan->rows * (double)m * (2 + config->k_warps) / 73 + 490;
  double parts = plan->shares.parts > 0 ? 1990 + 1.3 * (double)sm80_packed_parts_bytes(plan, m) /
                                                     (rates.cache * problem->device.multiprocessors)
                                        : 0;
  double begin = plan->folded ? 12370 : 7370, turn = (plan->folded ? 188 : 588) + 18.0 / (plan->stages - 1) +
                                                     plan->groups * group_cycles(config, plan, problem, m, &rates);
  return (begin + parts + rounds * (ends * sums + each_block * turn)) / rates.ghz / 1000;
}

double sm80_packed_us(const struct sm80_packed_config *config, const struct kernel_problem *problem) {
  int64_t most = sm80_packed_rows_most(problem), rest = problem->m % most, full = problem->m / most;
  struct sm80_packed_plan plan;
  double us = 0;
  if (full > 0 && sm80_packed_plan_for(config, problem, most, &plan))
    us += (double)full * cost(config, &plan, problem, most);
  if (rest > 0 && sm80_packed_plan_for(config, problem, rest, &plan))
    us += cost(config, &plan, problem, rest);
  return us;
}

/* Blocks to try: those that fill the device, that have the same slice of K each, and that have whole blocks of rows. */
static int block_counts(const struct sm80_packed_config *config, const struct kernel_problem *problem,
                        int (*out)[BLOCK_COUNTS]) {
  int device = problem->device.multiprocessors, count = 0;
  int row_blocks = ceil_div(padded(problem->n), config->n_warps * config->units * UNIT_ROWS);
  int64_t most = sm80_packed_rows_most(problem);
  int columns = sm80_packed_columns(problem->m < most ? problem->m : most);
  int turn = config->k_warps * groups_of(problem, is_folded(problem, columns, config->units));
  int64_t all = (int64_t)row_blocks * ceil_div(problem->k_padded / GEMM_GROUP, turn);
  int rounds = ceil_div(row_blocks, device), slices = device / row_blocks;
  (*out)[count++] = device < all ? device : (int)all;
  if (row_blocks > device && row_blocks % rounds == 0)
    (*out)[count++] = row_blocks / rounds;
  for (int i = 1; i <= slices && count < BLOCK_COUNTS; i *= 2)
    (*out)[count++] = i * row_blocks;
  if (slices > 2 && (slices & (slices - 1)) != 0 && count < BLOCK_COUNTS)
    (*out)[count++] = slices * row_blocks;
  return count;
}

int sm80_packed_candidates(const struct kernel_problem *problem, struct sm80_packed_config *out, int most) {
  double costs[SM80_PACKED_CONFIGS];
  struct sm80_packed_plan plan;
  int count = 0, blocks[BLOCK_COUNTS];
  int64_t rows = sm80_packed_rows_most(problem), m = problem->m < rows ? problem->m : rows;
  most = most < SM80_PACKED_CONFIGS ? most : SM80_PACKED_CONFIGS;
  for (int units = 1; units <= SM80_PACKED_UNITS_MOST; units *= 2)
    for (int n_warps = 1; n_warps <= SM80_PACKED_WARPS_MOST; n_warps++)
      for (int k_warps = 1; k_warps * n_warps <= SM80_PACKED_WARPS_MOST; k_warps++) {
        struct sm80_packed_config config = {.units = units, .n_warps = n_warps, .k_warps = k_warps};
        int counts = block_counts(&config, problem, &blocks);
        for (int i = 0; i < counts; i++) {
          config.blocks = blocks[i];
          if ((i == 0 || config.blocks != blocks[0]) && sm80_packed_fits(&config, problem) &&
              sm80_packed_plan_for(&config, problem, m, &plan))
            count = ranking_insert(out, costs, sizeof *out, count, most, &config, cost(&config, &plan, problem, m));
        }
      }
  return count;
}
