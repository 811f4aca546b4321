#include "config.h"

#include "../rates.h"

#include <math.h>
#include <string.h>

enum { SHARED_FIXED = 1024 };

static int64_t ceil_div(int64_t left, int64_t right) {
  return (left + right - 1) / right;
}

static int64_t go(const struct kernel_problem *problem) {
  return problem->m < SM80_INT4_COLUMNS ? problem->m : SM80_INT4_COLUMNS;
}

bool sm80_int4_takes(const struct kernel_problem *problem) {
  return problem->device.capability >= 80 && problem->tiled && problem->experts == 0 &&
         int4_form_keeps_x(problem->format) && !gemm_scale_facts(problem->scale)->zeros_f16;
}

uint64_t sm80_int4_parts_bytes(int split_k, const struct kernel_problem *problem, int64_t m) {
  uint64_t rows = (uint64_t)ceil_div(problem->n, INT4_BLOCK_ROWS) * INT4_BLOCK_ROWS;
  return split_k > 1 ? (uint64_t)split_k * (uint64_t)m * rows * sizeof(float) : 0;
}

bool sm80_int4_plan_for(int split_k, const struct kernel_problem *problem, int64_t m, struct sm80_int4_plan *out) {
  const struct int4_form form = int4_form_of(problem->format, problem->scale);
  memset(out, 0, sizeof *out);
  out->tiles = (int)ceil_div(problem->k, GEMM_GROUP);
  out->turns = (int)ceil_div(out->tiles, SM80_INT4_TOGETHER);
  out->row_blocks = (int)ceil_div(problem->n, INT4_BLOCK_ROWS);
  out->split_k = split_k;
  out->groups = form.groups, out->zeros = form.zeros, out->zeros_at = form.zeros_at, out->half_bytes = form.half_bytes;
  out->x_row_bytes = GEMM_GROUP * (int)gemm_type_bytes(problem->x_type) + SM80_INT4_PADDING;
  out->slot_bytes = SM80_INT4_TOGETHER * (2 * form.half_bytes + SM80_INT4_COLUMNS * out->x_row_bytes);
  /* Two blocks on a multiprocessor, where that leaves enough for each. */
  int all = problem->device.shared_most - SHARED_FIXED, half = (all - SHARED_FIXED) / 2 / out->slot_bytes;
  out->stages = half > SM80_INT4_STAGES_LEAST ? half : all / out->slot_bytes;
  out->stages = out->stages < SM80_INT4_STAGES_MOST ? out->stages : SM80_INT4_STAGES_MOST;
  out->shared_bytes = out->stages * out->slot_bytes;
  return split_k >= 1 && split_k <= SM80_INT4_SPLIT_MOST && split_k <= out->turns &&
         out->stages >= SM80_INT4_STAGES_LEAST &&
         sm80_int4_parts_bytes(split_k, problem, m) <= problem->device.workspace_bytes;
}

/* A turn takes as long as its copies, which multiprocessors share, or its instructions: of codes, of a word of eight
 * some INSTRUCTIONS, and of matrices. Not fitted. */
double sm80_int4_us(int split_k, const struct kernel_problem *problem) {
  enum { WORDS = 16, INSTRUCTIONS = 18, BEGIN = 4000, JOIN = 3000 };
  struct sm80_rates rates = sm80_rates_of(problem->device.capability);
  struct sm80_int4_plan plan;
  int64_t m = go(problem);
  if (!sm80_int4_plan_for(split_k, problem, m, &plan))
    return HUGE_VAL;
  double sms = problem->device.multiprocessors, blocks = (double)plan.row_blocks * split_k;
  double w = SM80_INT4_TOGETHER * 2.0 * plan.half_bytes, busy = fmin(1, blocks / sms);
  double scheduler = SM80_INT4_WARPS / 4.0 * WORDS, issued = scheduler * (INSTRUCTIONS + rates.halves);
  double turn = fmax(w / rates.memory * fmax(busy, 0.5), issued);
  double turns = ceil(blocks / sms) * (double)ceil_div(plan.turns, split_k);
  double join = split_k > 1 ? JOIN + (double)sm80_int4_parts_bytes(split_k, problem, m) / (rates.cache * sms) : 0;
  return (double)ceil_div(problem->m, m) * (BEGIN + join + turns * turn) / rates.ghz / 1000;
}
