#include "config.h"

#include "../../../heuristics/clusters.h"
#include "../../../heuristics/ranking.h"

#include <math.h>
#include <string.h>

enum { ROWS_OF_X = 64 /* up to which hopper/config.h's kernel is faster */, GROUP = 16, GROUP_MOST = 64 };

static int64_t quotient_up(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

bool fp8_many_takes(const struct kernel_problem *problem) {
  bool fp8 =
      problem->format == GEMM_FORMAT_FP8 && !kernel_problem_cancels(problem) && problem->scale != GEMM_SCALE_BLOCK;
  bool int8 = problem->format == GEMM_FORMAT_INT8 && problem->y_type != GEMM_S32;
  return problem->device.capability == 90 && (fp8 || int8) && problem->m > ROWS_OF_X;
}

/* Sums that leave the tensor cores after every instruction. */
static bool finely(const struct kernel_problem *problem) {
  return problem->format == GEMM_FORMAT_FP8 && problem->y_type != GEMM_BF16;
}

static struct fp8_many_divisor divisor(int64_t by) {
  return (struct fp8_many_divisor){(uint32_t)by, by > 1 ? (uint32_t)(((uint64_t)1 << 32) / (uint64_t)by + 1) : 0};
}

enum { COLUMNS = 4, ROWS_STEP = 64 };

/* Integer products take columns by sixteens. */
static const int *columns_of(const struct kernel_problem *problem) {
  static const int of_fp8[COLUMNS] = {128, 104, 96, 80}, of_int8[COLUMNS] = {128, 112, 96, 80};
  return problem->format == GEMM_FORMAT_INT8 ? of_int8 : of_fp8;
}

static bool config_valid(const struct fp8_many_config *config, const struct kernel_problem *problem) {
  bool known = false;
  for (int i = 0; i < COLUMNS; i++)
    known |= config->columns == columns_of(problem)[i];
  bool rows = config->rows == FP8_MANY_ROWS_LEAST ||
              (!finely(problem) && (config->rows == FP8_MANY_ROWS_LEAST + ROWS_STEP ||
                                    (config->rows == FP8_MANY_ROWS_MOST && config->split_k == 1)));
  return known && rows && config->split_k >= 1 && config->split_k <= FP8_MANY_SPLIT_MOST && config->group >= 1 &&
         config->group <= GROUP_MOST;
}

/* The least width that holds so many columns. */
static int width_for(const struct kernel_problem *problem, int columns) {
  const int *widths = columns_of(problem);
  int i = COLUMNS - 1;
  while (i > 0 && widths[i] < columns)
    i--;
  return widths[i];
}

bool fp8_many_plan_for(const struct fp8_many_config *config, const struct kernel_problem *problem,
                       struct fp8_many_plan *out) {
  int sms = problem->device.multiprocessors;
  memset(out, 0, sizeof *out);
  if (!config_valid(config, problem))
    return false;
  int64_t w_tiles = quotient_up(problem->n, config->rows), x_tiles = quotient_up(problem->m, config->columns);
  int64_t steps = quotient_up(problem->k_padded, FP8_MANY_STEP),
          group = x_tiles < config->group ? x_tiles : config->group;
  int64_t tiles = w_tiles * x_tiles, in_group = group * w_tiles;
  if (tiles > INT32_MAX || (tiles + in_group) * in_group > UINT32_MAX || config->split_k > steps ||
      (config->split_k > 1 && (double)(tiles * config->split_k) > clusters_usable(sms, config->split_k)))
    return false;
  int columns = (int)(quotient_up(quotient_up(problem->m, x_tiles), 8) * 8);
  *out = (struct fp8_many_plan){
      .steps = (int)steps,
      .steps_of_block = (int)quotient_up(steps, config->split_k),
      .w_tiles = (int)w_tiles,
      .x_tiles = (int)x_tiles,
      .columns = columns,
      .width = width_for(problem, columns),
      .blocks = (int)(tiles * config->split_k < sms ? tiles * config->split_k : sms),
      .split_k = config->split_k,
      .group = (int)group,
      .by_group = divisor(in_group),
      .by_wide = divisor(group),
      .by_last = divisor((x_tiles - 1) % group + 1),
  };
  return true;
}

/* ---- the model */

/* What a launch begins and ends with by split_k, a tile of 128 x 128, what blocks that share one exchange, and how
 * this grows with rows of W, 128 of K, once and by a tile of 128 x 128, by rows of W, longer where all multiprocessors
 * have one, and what it costs to share tiles of 192 rows, of which few steps are under way, in microseconds; and of
 * what comes, bytes a microsecond: of W from memory, and into a multiprocessor whose neighbour is idle or busy, of
 * whose bytes some count less: those of W where several blocks read them, and of x. */
struct prices {
  double launch[FP8_MANY_SPLIT_MOST], tile, joined, bent, step, area[3], crowded, late;
  double memory, alone, beside, shared_w, shared_x;
};

/* Fitted to an H200, 69 products of each format by the 16 that this holds for the best. */
static const struct prices of_fp8 = {.launch = {1.6, 1.89, 1.96, 2.08},
                                     .tile = 0.83,
                                     .joined = 1.96,
                                     .bent = 0.898,
                                     .step = 0.0186,
                                     .area = {0.2998, 0.2748, 0.3072},
                                     .crowded = 0.108,
                                     .late = 1.6,
                                     .memory = 4.229e6,
                                     .alone = 0.0932e6,
                                     .beside = 0.0595e6,
                                     .shared_w = 0.837,
                                     .shared_x = 0.602},
                           of_int8 = {.launch = {1.38, 1.69, 1.64, 2.04},
                                      .tile = 1.01,
                                      .joined = 2.42,
                                      .bent = 0.672,
                                      .step = 0.0391,
                                      .area = {0.2785, 0.2869, 0.2935},
                                      .crowded = 0.029,
                                      .late = 8,
                                      .memory = 4.273e6,
                                      .alone = 0.104e6,
                                      .beside = 0.0606e6,
                                      .shared_w = 0.82,
                                      .shared_x = 0.483};

/* A wave of so many blocks, each with a tile or its part of one. */
static double wave_us(const struct fp8_many_config *config, const struct kernel_problem *problem,
                      const struct prices *prices, const struct fp8_many_plan *plan, double blocks) {
  static const double FEWER_UNDER_WAY = 0.92; /* four steps of 256 rows for six of 128 */
  double sms = problem->device.multiprocessors, area = (double)config->rows * plan->width / (128 * 128);
  /* Sums that leave after every instruction take the time of their additions. */
  double each = finely(problem) ? 0.47 : prices->area[config->rows / ROWS_STEP - 2];
  double step = prices->step + area * (each + prices->crowded * blocks / sms);
  double coming = blocks * config->rows * FP8_MANY_STEP / fmin(plan->x_tiles, config->group) /
                  (prices->memory * (config->rows == FP8_MANY_ROWS_MOST ? FEWER_UNDER_WAY : 1));
  double filling = (config->rows * (plan->x_tiles > 1 ? prices->shared_w : 1) + prices->shared_x * plan->columns) *
                   FP8_MANY_STEP / (2 * blocks > sms ? prices->beside : prices->alone);
  return prices->tile * area / config->split_k + plan->steps_of_block * fmax(fmax(step, coming), filling);
}

static double cost(const struct fp8_many_config *config, const struct kernel_problem *problem) {
  const struct prices *prices = problem->format == GEMM_FORMAT_INT8 ? &of_int8 : &of_fp8;
  struct fp8_many_plan plan;
  int sms = problem->device.multiprocessors, split = config->split_k;
  (void)fp8_many_plan_for(config, problem, &plan);
  int64_t blocks = (int64_t)plan.w_tiles * plan.x_tiles * split, whole = blocks / sms, last = blocks % sms;
  bool late = config->rows == FP8_MANY_ROWS_LEAST + ROWS_STEP && split > 1 && plan.x_tiles > 1;
  double joining = prices->joined * ((double)config->rows * plan.width / (128 * 128)) * (1 - 1.0 / split) *
                   pow(config->rows / 128.0, prices->bent);
  return prices->launch[split - 1] + joining + (late ? prices->late : 0) +
         (double)whole * wave_us(config, problem, prices, &plan, sms) +
         (last > 0 ? wave_us(config, problem, prices, &plan, (double)last) : 0);
}

struct visit {
  int count, most;
  struct fp8_many_config *list;
  double us[FP8_MANY_ALL];
};

static void visit(struct visit *visit, const struct kernel_problem *problem, const struct fp8_many_config *config) {
  struct fp8_many_plan plan;
  if (fp8_many_plan_for(config, problem, &plan))
    visit->count = ranking_insert(visit->list, visit->us, sizeof *config, visit->count, visit->most, config,
                                  cost(config, problem));
}

/* More tiles of x than there need be only where multiprocessors would have none. */
static void visit_all(struct visit *to, const struct kernel_problem *problem, int group) {
  const int *columns = columns_of(problem);
  int64_t least = quotient_up(problem->m, columns[0]);
  for (int i = 0; i < COLUMNS; i++) {
    int64_t x_tiles = quotient_up(problem->m, columns[i]);
    if (i > 0 && x_tiles == quotient_up(problem->m, columns[i - 1]))
      continue; /* the same tiles */
    for (int rows = FP8_MANY_ROWS_LEAST; rows <= FP8_MANY_ROWS_MOST; rows += ROWS_STEP)
      for (int split = 1; split <= FP8_MANY_SPLIT_MOST; split++)
        if (x_tiles == least || x_tiles * quotient_up(problem->n, rows) <= problem->device.multiprocessors)
          visit(to, problem, &(struct fp8_many_config){rows, columns[i], split, group});
  }
}

struct fp8_many_config fp8_many_configure(const struct kernel_problem *problem, double *us) {
  struct fp8_many_config best = {.rows = FP8_MANY_ROWS_LEAST, .columns = FP8_MANY_COLUMNS_MOST, .split_k = 1};
  struct visit list = {.most = 1, .list = &best};
  visit_all(&list, problem, GROUP);
  *us = list.us[0];
  return best;
}

int fp8_many_candidates(const struct kernel_problem *problem, bool all, struct fp8_many_config *out, int most) {
  enum { FEW = 16 };
  struct visit list = {.most = most < FP8_MANY_ALL ? most : FP8_MANY_ALL, .list = out};
  if (!all && list.most > FEW)
    list.most = FEW;
  visit_all(&list, problem, GROUP);
  if (problem->m > (GROUP / 2) * FP8_MANY_COLUMNS_MOST)
    visit_all(&list, problem, GROUP / 2);
  return list.count;
}
