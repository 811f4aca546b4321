#include "config.h"

#include "../grouped_int2/config.h"

#include <math.h>
#include <string.h>

/* FIXED: barriers, and what is not counted here. */
enum { SHARED_MOST = 226 * 1024, FIXED = 2 * 1024, K_MOST = 16384 };

bool grouped_int4_splits(enum gemm_type x_type) {
  return x_type == GEMM_F32;
}

bool grouped_int4_plan_for(const struct int4_form *form, int rows, bool splits, int64_t k,
                           struct grouped_int4_plan *out) {
  struct grouped_int4_plan plan = {
      .rows = rows, .columns = splits ? 2 * rows : rows, .tiles = (int)((k + GEMM_GROUP - 1) / GEMM_GROUP)};
  memset(out, 0, sizeof *out);
  if (rows < 1 || plan.columns > GROUPED_INT4_COLUMNS || k > K_MOST)
    return false;
  plan.warps = plan.columns <= GROUPED_INT4_NARROW ? 16 : 8;
  int together = plan.warps / 2, stage_bytes = plan.warps * form->half_bytes;
  plan.x_pitch = plan.tiles * GEMM_GROUP * 2 + GROUPED_INT4_X_PAD;
  plan.x_bytes = (int)gemm_round_up((uint64_t)plan.columns * (uint64_t)plan.x_pitch, 128);
  plan.sums_bytes = 2 * together * rows * GROUPED_INT4_SUMS_PITCH * (int)sizeof(float); /* of two blocks of rows */
  plan.stages = (SHARED_MOST - FIXED - plan.x_bytes - plan.sums_bytes) / stage_bytes;
  plan.stages = plan.stages < GROUPED_INT4_STAGES_MOST ? plan.stages : GROUPED_INT4_STAGES_MOST;
  plan.shared_bytes = FIXED + plan.x_bytes + plan.sums_bytes + plan.stages * stage_bytes;
  *out = plan;
  return plan.stages >= GROUPED_INT4_STAGES_LEAST;
}

int grouped_int4_rows(const struct int4_form *form, bool splits, int64_t k) {
  struct grouped_int4_plan plan;
  for (int rows = splits ? GROUPED_INT4_COLUMNS / 2 : GROUPED_INT4_COLUMNS; rows > 0; rows /= 2)
    if (grouped_int4_plan_for(form, rows, splits, k, &plan))
      return rows;
  return 0;
}

bool grouped_int4_fits(int64_t n, int64_t k) {
  const struct int4_form largest = int4_form_of(GEMM_FORMAT_INT4, GEMM_SCALE_GROUP32_ZEROS);
  return n % INT4_BLOCK_ROWS == 0 && grouped_int4_rows(&largest, true, k) > 0;
}

bool grouped_int4_takes(const struct kernel_problem *problem) {
  return problem->device.capability == 90 && problem->tiled && problem->experts > 0 &&
         int4_form_keeps_x(problem->format) && grouped_int4_fits(problem->n, problem->k);
}

/* By an H200. Tiles of more than eight rows take twice the time of others. */
double grouped_int4_us(const struct kernel_problem *problem, int rows) {
  static const double BYTES_A_US = 3.7e6, BEGIN_US = 6;
  double half = int4_form_of(problem->format, problem->scale).half_bytes;
  double halves = (double)problem->n / INT4_HALF_ROWS * (double)((problem->k + GEMM_GROUP - 1) / GEMM_GROUP);
  double each = (double)problem->m / (double)problem->experts;
  double wide = rows > GROUPED_INT4_NARROW ? 1 + fmin(1, each / 19) : 1;
  return BEGIN_US + grouped_int2_tiles(problem, rows) * halves * half * wide / BYTES_A_US;
}
