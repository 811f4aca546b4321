#include "behind.h"

#include "../../../heuristics/clusters.h"

/* FP8, bf16 x and y, W out of the caches, 45 shapes of W from 1024x1024 to 28672x4096, M from 1 to 64, some 130
 * configurations each, H200: the model's picks took 3.4 % longer than the best on average, 37 % at worst, and 3 % or
 * more in 115 of 270 cases; NOTES.md has what they take with these rules. */

enum { STEP = HOPPER_STEP, GROUP_ROWS = HOPPER_GROUP_ROWS };
enum { BEHIND_ROWS_MOST = 64, BEHIND_LEAST = 1024 };

static bool behind(const struct kernel_problem *problem) {
  return !problem->in_row && problem->scale != GEMM_SCALE_BLOCK && problem->m <= BEHIND_ROWS_MOST &&
         problem->n >= BEHIND_LEAST && problem->k_padded >= BEHIND_LEAST &&
         (problem->x_type == GEMM_F32 || problem->x_type == GEMM_F16 || problem->x_type == GEMM_BF16);
}

static int64_t tiles_of(const struct kernel_problem *problem, int rows) {
  return (problem->n + rows - 1) / rows;
}

static int64_t steps_of(const struct kernel_problem *problem) {
  return (problem->k_padded + STEP - 1) / STEP;
}

static double usable_for(const struct kernel_problem *problem, int split_k) {
  return clusters_usable(problem->device.multiprocessors, split_k);
}

static int eights(int64_t rows) {
  return (int)((rows + 7) / 8 * 8);
}

static bool take(struct hopper_config *config, const struct hopper_config *other,
                 const struct kernel_problem *problem) {
  if (!hopper_config_valid(other, problem->scale))
    return false;
  *config = *other;
  return true;
}

/* While the quantizer has a block for each row of x, its multiprocessors take none: a third block comes to others that
 * have room for it, and ends late; the last cluster of a device that is full begins when others have ended. 8 to 37 %
 * more than blocks of two groups (3328x6144, M = 16: 12.5 us for 9.1). Blocks of few rows gain nothing by being halves.
 */
bool hopper_halves_behind(const struct hopper_config *half, const struct kernel_problem *problem) {
  enum { FEW = 2, COLUMNS_FEW = 8, ROWS_FEW = 40, FOUR = 4 };
  int64_t blocks = tiles_of(problem, half->rows) * half->split_k;
  double places = 2 * usable_for(problem, half->split_k), taken = 2 * (double)problem->m;
  if (!behind(problem) || problem->m <= FEW)
    return true;
  if (half->split_k > FOUR)
    return half->columns == COLUMNS_FEW || half->split_k < 8;
  bool third = hopper_resident(half, problem->scale) > 2;
  return (double)blocks < 0.99 * places && (!third || (double)blocks < places - taken) &&
         (half->columns == COLUMNS_FEW || half->rows > ROWS_FEW);
}

/* A ring of six steps leaves the next product's blocks no room: with three 1 to 8 % less. Where three blocks can share
 * K such of two groups that fill the device, 0 to 5 % less than that. */
static void make_room(struct hopper_config *config, const struct kernel_problem *problem) {
  enum {
    FEW = 8,
    MORE = 16,
    AHEAD = 6,
    LEFT = 3,
    THREE = 3,
    STEPS_LEAST = 12,
    ROWS_OF_FEW = 72,
    ROWS_OF_MORE = 88,
    SPARE = 4
  };
  if (config->ahead != AHEAD || config->columns > MORE)
    return;
  int spare = config->columns > FEW ? SPARE : 1; /* clusters whose places the quantizer may have */
  int rows = eights(tiles_of(problem, (int)(usable_for(problem, THREE) / THREE) - spare));
  const struct hopper_config three = {config->columns, 2, rows, THREE, LEFT};
  bool fills = config->split_k == 2 && rows >= (config->columns > FEW ? ROWS_OF_MORE : ROWS_OF_FEW) &&
               rows < 2 * GROUP_ROWS && steps_of(problem) >= STEPS_LEAST;
  if (fills && take(config, &three, problem))
    return;
  if (config->columns == FEW || config->split_k > THREE)
    config->ahead = LEFT;
}

/* With 64 columns of x blocks of one group each that share K so that they fill the device once: up to 12 % less. */
static void fill_once(struct hopper_config *config, const struct kernel_problem *problem) {
  enum { COLUMNS = 64, SPLIT_MOST = 6, STEPS_MOST = 8 };
  int64_t blocks = tiles_of(problem, GROUP_ROWS);
  struct hopper_config once = {COLUMNS, 1, GROUP_ROWS, SPLIT_MOST, 3};
  while (once.split_k > 1 &&
         ((double)(blocks * once.split_k) > usable_for(problem, once.split_k) || once.split_k > steps_of(problem)))
    once.split_k -= once.split_k > 4 ? 2 : 1;
  bool fills = 20 * blocks * once.split_k >= 13 * (int64_t)problem->device.multiprocessors;
  if (config->columns == COLUMNS && once.split_k > 1 && fills && steps_of(problem) <= STEPS_MOST * once.split_k)
    (void)take(config, &once, problem);
}

/* Clusters of six whose blocks of 64 rows fill the device twice, or once with 8 columns: 2 to 10 % less for long K. */
static void share_by_six(struct hopper_config *config, const struct kernel_problem *problem) {
  enum { SIX = 6, FEW = 8, COLUMNS_MOST = 32, STEPS_LEAST = 16, STEPS_OF_TWICE = 24 };
  double part = (double)(tiles_of(problem, GROUP_ROWS) * SIX) / usable_for(problem, SIX);
  bool once = config->columns == FEW && part > 0.9 && part < 0.96 && steps_of(problem) >= STEPS_LEAST;
  bool twice = part > 1.8 && part < 1.92 && steps_of(problem) >= STEPS_OF_TWICE;
  const struct hopper_config six = {config->columns, 1, GROUP_ROWS, SIX, 3};
  if (config->columns <= COLUMNS_MOST && (once || twice))
    (void)take(config, &six, problem);
}

/* Two blocks share K of some 2048 that one has by the model, of two groups where they would have few rows: 2 to 12 %
 * less. */
static void share_by_two(struct hopper_config *config, const struct kernel_problem *problem) {
  enum { FEW = 8, COLUMNS_MOST = 32, STEPS_LEAST = 8, STEPS_MOST = 11, ROWS_FEW = 40, DOUBLE_OF_16 = 96 };
  int64_t most = problem->device.multiprocessors;
  int rows = 2 * tiles_of(problem, GROUP_ROWS) <= most ? GROUP_ROWS : eights(tiles_of(problem, (int)most - 4));
  struct hopper_config two = {config->columns, 1, rows, 2, 3};
  if (rows == ROWS_FEW && config->columns > FEW) {
    two.groups = 2;
    two.rows = config->columns < COLUMNS_MOST ? DOUBLE_OF_16 : 2 * ROWS_FEW;
  }
  bool fills = rows < GROUP_ROWS || 20 * tiles_of(problem, GROUP_ROWS) >= 9 * most;
  if (config->split_k <= 2 && config->groups == 1 && config->columns <= COLUMNS_MOST && rows >= ROWS_FEW && fills &&
      tiles_of(problem, GROUP_ROWS) < most - 16 && steps_of(problem) >= STEPS_LEAST && steps_of(problem) <= STEPS_MOST)
    (void)take(config, &two, problem);
}

/* What else took less, 1 to 8 %: three steps ahead rather than four where eight blocks share K, and 96 rows with three
 * rather than 72 with four; halves of blocks that have a short K whole; with 64 columns rows that fill the device
 * twice.
 */
static void settle(struct hopper_config *config, const struct kernel_problem *problem) {
  enum { MANY = 8, ODD = 72, ROWS = 96, STEPS_LEAST = 3, STEPS_MOST = 20, SHORT = 8, COLUMNS = 64, HALF_COLUMNS = 32 };
  int64_t sms = problem->device.multiprocessors, pairs = 2 * tiles_of(problem, 2 * GROUP_ROWS);
  struct hopper_config other = *config;
  if (config->split_k == MANY && config->ahead > 3 && config->rows != ODD)
    other.ahead = 3;
  else if (config->groups == 2 && config->rows == ODD && config->ahead == 4 &&
           steps_of(problem) >= STEPS_LEAST * config->split_k && steps_of(problem) <= STEPS_MOST)
    other = (struct hopper_config){config->columns, 2, ROWS, config->split_k, 3};
  else if (config->groups == 2 && config->rows == ODD + 8 && config->columns == HALF_COLUMNS)
    other.ahead = 3;
  if (config->split_k == 1 && config->groups == 2 && config->rows == 2 * GROUP_ROWS &&
      config->columns <= HALF_COLUMNS && steps_of(problem) <= SHORT && pairs <= 2 * sms)
    other = (struct hopper_config){config->columns, 1, GROUP_ROWS, 1, 3};
  int rows = eights(tiles_of(problem, 2 * (int)sms));
  if (config->split_k == 1 && config->groups == 2 && config->columns == COLUMNS && rows < config->rows &&
      rows > 3 * GROUP_ROWS / 2)
    other.rows = rows;
  (void)take(config, &other, problem);
}

void hopper_adjust_behind(struct hopper_config *config, const struct kernel_problem *problem) {
  if (!behind(problem))
    return;
  make_room(config, problem);
  settle(config, problem);
  fill_once(config, problem);
  share_by_two(config, problem);
  share_by_six(config, problem);
}
