#include "config.h"

#include "../../../heuristics/clusters.h"
#include "../../../heuristics/ranking.h"
#include "../int2/a8_layout.h"

#include <math.h>
#include <string.h>

enum {
  ROWS_OF_X = 64, /* up to which hopper/config.h's kernel is faster */
  GROUP_MOST = 64
};

static int64_t quotient_up(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

bool fp8_many_takes(const struct kernel_problem *problem) {
  bool fp8 =
      problem->format == GEMM_FORMAT_FP8 && !kernel_problem_cancels(problem) && problem->scale != GEMM_SCALE_BLOCK;
  bool int8 = problem->format == GEMM_FORMAT_INT8 && problem->y_type != GEMM_S32;
  bool int2a8 = problem->format == GEMM_FORMAT_INT2A8 && problem->tiled && problem->y_type != GEMM_S32;
  return problem->device.capability == 90 && (fp8 || int8 || int2a8) && problem->m > ROWS_OF_X;
}

/* Sums that leave the tensor cores after every instruction. */
static bool finely(const struct kernel_problem *problem) {
  return problem->format == GEMM_FORMAT_FP8 && problem->y_type != GEMM_BF16;
}

static struct fp8_many_divisor divisor(int64_t by) {
  return (struct fp8_many_divisor){(uint32_t)by, by > 1 ? (uint32_t)(((uint64_t)1 << 32) / (uint64_t)by + 1) : 0};
}

enum { COLUMNS = 4, ROWS_STEP = 64 };

static bool coded(const struct kernel_problem *problem) {
  return problem->format == GEMM_FORMAT_INT2A8;
}

/* Integer products take columns by sixteens; INT2A8's with y in f32 leave no registers for more than 96. */
static const int *columns_of(const struct kernel_problem *problem) {
  static const int of_fp8[COLUMNS] = {128, 104, 96, 80}, of_int8[COLUMNS] = {128, 112, 96, 80},
                   of_int2a8[COLUMNS] = {128, 112, 96, 96}, of_int2a8_f32[COLUMNS] = {96, 96, 96, 96};
  if (coded(problem))
    return problem->y_type == GEMM_F32 ? of_int2a8_f32 : of_int2a8;
  return problem->format == GEMM_FORMAT_INT8 ? of_int8 : of_fp8;
}

static bool config_valid(const struct fp8_many_config *config, const struct kernel_problem *problem) {
  bool known = false;
  for (int i = 0; i < COLUMNS; i++)
    known |= config->columns == columns_of(problem)[i];
  bool rows = config->rows == FP8_MANY_ROWS_LEAST || (!finely(problem) && !coded(problem) &&
                                                      (config->rows == FP8_MANY_ROWS_LEAST + ROWS_STEP ||
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
  int64_t steps =
              coded(problem) ? quotient_up(problem->k, INT2A8_TILE_K) : quotient_up(problem->k_padded, FP8_MANY_STEP),
          group = x_tiles < config->group ? x_tiles : config->group;
  int64_t tiles = w_tiles * x_tiles, in_group = group * w_tiles;
  if (tiles > INT32_MAX || (tiles + in_group) * in_group > UINT32_MAX || config->split_k > steps)
    return false;
  int64_t clusters = config->split_k == 1 ? sms : (int64_t)clusters_usable(sms, config->split_k) / config->split_k;
  clusters = tiles < clusters ? tiles : clusters;
  int64_t blocks = clusters * config->split_k, whole = tiles / blocks, left = tiles % blocks;
  if (config->split_k == 1 || left > clusters)
    whole += left > 0; /* too much for clusters to have one each, as with fewer rows than a kernel was chosen for */
  int columns = (int)(quotient_up(quotient_up(problem->m, x_tiles), 8) * 8);
  *out = (struct fp8_many_plan){
      .steps = (int)steps,
      .steps_of_block = (int)quotient_up(steps, config->split_k),
      .whole = (int)whole,
      .w_tiles = (int)w_tiles,
      .x_tiles = (int)x_tiles,
      .columns = columns,
      .width = width_for(problem, columns),
      .blocks = (int)blocks,
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
                                      .late = 2.5,
                                      .memory = 4.273e6,
                                      .alone = 0.104e6,
                                      .beside = 0.0606e6,
                                      .shared_w = 0.82,
                                      .shared_x = 0.483},
                           of_int2a8 = {.launch = {3.88, 2.95, 3.39, 3.96},
                                        .tile = 1.36,
                                        .joined = 4.33,
                                        .step = 0.228,
                                        .area = {0.719},
                                        .crowded = 0.073,
                                        .memory = 4.2e6,
                                        .alone = 0.0932e6,
                                        .beside = 0.0595e6,
                                        .shared_w = 0.84,
                                        .shared_x = 0.6};

static const struct prices *prices_of(const struct kernel_problem *problem) {
  return coded(problem) ? &of_int2a8 : problem->format == GEMM_FORMAT_INT8 ? &of_int8 : &of_fp8;
}

/* A wave of so many blocks, each with a tile or, where `split` share one, its part. */
static double wave_us(const struct fp8_many_config *config, const struct kernel_problem *problem,
                      const struct prices *prices, const struct fp8_many_plan *plan, int split, double blocks) {
  static const double FEWER_UNDER_WAY = 0.92; /* four steps of 256 rows for six of 128 */
  double sms = problem->device.multiprocessors, area = (double)config->rows * plan->width / (128 * 128);
  /* Sums that leave after every instruction take the time of their additions. */
  double each = finely(problem) ? 0.47 : prices->area[config->rows / ROWS_STEP - 2];
  double step = prices->step + area * (each + prices->crowded * blocks / sms);
  double w_bytes = config->rows * (coded(problem) ? INT2A8_TILE_BYTES / INT2A8_BLOCK_ROWS : FP8_MANY_STEP),
         x_bytes = plan->columns * (coded(problem) ? INT2A8_TILE_K : FP8_MANY_STEP);
  double coming = blocks * w_bytes / fmin(plan->x_tiles, config->group) /
                  (prices->memory * (config->rows == FP8_MANY_ROWS_MOST ? FEWER_UNDER_WAY : 1));
  double filling = (w_bytes * (plan->x_tiles > 1 ? prices->shared_w : 1) + prices->shared_x * x_bytes) /
                   (2 * blocks > sms ? prices->beside : prices->alone);
  return prices->tile * area / split +
         (split > 1 ? plan->steps_of_block : plan->steps) * fmax(fmax(step, coming), filling);
}

static double cost(const struct fp8_many_config *config, const struct kernel_problem *problem) {
  const struct prices *prices = prices_of(problem);
  struct fp8_many_plan plan;
  int split = config->split_k;
  (void)fp8_many_plan_for(config, problem, &plan);
  int64_t tiles = (int64_t)plan.w_tiles * plan.x_tiles, waves = tiles / plan.blocks, last = tiles % plan.blocks * split;
  bool late = config->rows == FP8_MANY_ROWS_LEAST + ROWS_STEP && split > 1 && plan.x_tiles > 1;
  double joining = prices->joined * ((double)config->rows * plan.width / (128 * 128)) * (1 - 1.0 / split) *
                   pow(config->rows / 128.0, prices->bent);
  return prices->launch[split - 1] + joining + (late ? prices->late : 0) +
         (double)waves * wave_us(config, problem, prices, &plan, 1, plan.blocks) +
         (last > 0 ? wave_us(config, problem, prices, &plan, split, (double)last) : 0);
}

struct visit {
  int count, most;
  struct fp8_many_config *list;
  double us[FP8_MANY_ALL];
};

static void visit(struct visit *visit, const struct kernel_problem *problem, const struct fp8_many_config *config) {
  enum { WHOLE_MOST = 6 /* behind more, sharing what is left saves less than the device's power decides */ };
  struct fp8_many_plan plan;
  if (!fp8_many_plan_for(config, problem, &plan))
    return;
  bool shares = plan.whole * plan.blocks < plan.w_tiles * plan.x_tiles;
  if (config->split_k == 1 || (shares && plan.whole <= WHOLE_MOST))
    visit->count = ranking_insert(visit->list, visit->us, sizeof *config, visit->count, visit->most, config,
                                  cost(config, problem));
}

/* Tiles of x with which a wave of blocks reads about the least: as many bytes of x as of W, whose tiles have so many
 * rows. */
static int group_of(int rows) {
  return rows > FP8_MANY_ROWS_LEAST ? 16 : 12;
}

/* More tiles of x than there need be only where multiprocessors would have none. smaller: by what groups are. */
static void visit_all(struct visit *to, const struct kernel_problem *problem, int smaller) {
  const int *columns = columns_of(problem);
  int64_t least = quotient_up(problem->m, columns[0]);
  for (int i = 0; i < COLUMNS; i++) {
    int64_t x_tiles = quotient_up(problem->m, columns[i]);
    if (i > 0 && x_tiles == quotient_up(problem->m, columns[i - 1]))
      continue; /* the same tiles */
    for (int rows = FP8_MANY_ROWS_LEAST; rows <= FP8_MANY_ROWS_MOST; rows += ROWS_STEP)
      for (int split = 1; split <= FP8_MANY_SPLIT_MOST; split++)
        if (x_tiles == least || x_tiles * quotient_up(problem->n, rows) <= problem->device.multiprocessors)
          visit(to, problem, &(struct fp8_many_config){rows, columns[i], split, group_of(rows) / smaller});
  }
}

struct fp8_many_config fp8_many_configure(const struct kernel_problem *problem, double *us) {
  struct fp8_many_config best = {.rows = FP8_MANY_ROWS_LEAST, .columns = FP8_MANY_COLUMNS_MOST, .split_k = 1};
  struct visit list = {.most = 1, .list = &best};
  visit_all(&list, problem, 1);
  *us = list.us[0];
  return best;
}

int fp8_many_candidates(const struct kernel_problem *problem, bool all, struct fp8_many_config *out, int most) {
  enum { FEW = 16 };
  struct visit list = {.most = most < FP8_MANY_ALL ? most : FP8_MANY_ALL, .list = out};
  if (!all && list.most > FEW)
    list.most = FEW;
  visit_all(&list, problem, 1);
  if (problem->m > group_of(FP8_MANY_ROWS_LEAST) / 2 * FP8_MANY_COLUMNS_MOST)
    visit_all(&list, problem, 2);
  return list.count;
}
