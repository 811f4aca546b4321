#include "config.h"

#include "../int2/layout.h"
#include "../int2_few/config.h"

#include <math.h>
#include <string.h>

/* FIXED: barriers, and what is not counted here. */
enum { SHARED_MOST = 227 * 1024, FIXED = 2 * 1024, K_MOST = 16384, STAGE_BYTES = GROUPED_INT2_WARPS * INT2_TILE_BYTES };

bool grouped_int2_plan_for(int rows, bool splits, int64_t k, struct grouped_int2_plan *out) {
  struct grouped_int2_plan plan = {
      .rows = rows, .columns = splits ? 2 * rows : rows, .groups = (int)((k + GEMM_GROUP - 1) / GEMM_GROUP)};
  memset(out, 0, sizeof *out);
  if (rows < 1 || plan.columns > GROUPED_INT2_COLUMNS || k > K_MOST)
    return false;
  plan.multipliers = (plan.groups + 3) / 4 * 4;
  plan.x_bytes = plan.columns * plan.groups * GROUPED_INT2_X_BYTES;
  plan.multiplier_bytes = (int)gemm_round_up((uint64_t)(rows * plan.multipliers) * sizeof(float), 128);
  /* of two blocks of rows, each warp's, [rows][68] f32 */
  plan.sums_bytes = 2 * GROUPED_INT2_WARPS * rows * (INT2_BLOCK_ROWS + 4) * (int)sizeof(float);
  int room = SHARED_MOST - FIXED - plan.x_bytes - plan.multiplier_bytes - plan.sums_bytes;
  plan.stages = room / STAGE_BYTES;
  plan.stages = plan.stages < GROUPED_INT2_STAGES_MOST ? plan.stages : GROUPED_INT2_STAGES_MOST;
  plan.shared_bytes = FIXED + plan.x_bytes + plan.multiplier_bytes + plan.sums_bytes + plan.stages * STAGE_BYTES;
  *out = plan;
  return plan.stages >= GROUPED_INT2_STAGES_LEAST;
}

int grouped_int2_rows(bool splits, int64_t k) {
  struct grouped_int2_plan plan;
  for (int rows = splits ? GROUPED_INT2_COLUMNS / 2 : GROUPED_INT2_COLUMNS; rows > 0; rows /= 2)
    if (grouped_int2_plan_for(rows, splits, k, &plan))
      return rows;
  return 0;
}

/* Where hardly any expert has more than four rows the room that they leave is better used for W. */
int grouped_int2_rows_for(const struct kernel_problem *problem) {
  int rows = grouped_int2_rows(int2_few_splits(problem->x_type, problem->y_type), problem->k);
  return 2 * problem->m <= 3 * problem->experts && rows > 4 ? 4 : rows;
}

bool grouped_int2_fits(int64_t n, int64_t k) {
  return n % INT2_BLOCK_ROWS == 0 && grouped_int2_rows(true, k) > 0;
}

bool grouped_int2_takes(const struct kernel_problem *problem) {
  return problem->device.capability == 90 && problem->format == GEMM_FORMAT_INT2 && problem->tiled &&
         problem->experts > 0 && grouped_int2_fits(problem->n, problem->k);
}

/* By Poisson's law, whose probabilities follow each other; many tiles are half empty once. */
double grouped_int2_tiles(const struct kernel_problem *problem, int columns) {
  enum { MANY = 64 };
  double experts = (double)problem->experts, rows = (double)problem->m / experts, tiles = 0;
  if (rows > MANY)
    return experts * (rows / columns + 0.5);
  double probability = exp(-rows);
  for (int n = 1; n < 4 * MANY; n++) {
    probability *= rows / n;
    tiles += probability * ((n + columns - 1) / columns);
  }
  return experts * tiles;
}

double grouped_int2_us(const struct kernel_problem *problem) {
  static const double BYTES_A_US = 3.5e6, BEGIN_US = 6;
  double tiles = grouped_int2_tiles(problem, GROUPED_INT2_COLUMNS);
  return BEGIN_US + tiles * (double)problem->n * (double)problem->k * 0.266 / BYTES_A_US;
}
