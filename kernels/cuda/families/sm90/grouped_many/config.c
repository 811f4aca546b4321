#include "config.h"

#include <math.h>

bool grouped_many_takes(const struct kernel_problem *problem) {
  bool fp8 = problem->format == GEMM_FORMAT_FP8 && problem->scale != GEMM_SCALE_BLOCK && problem->y_type == GEMM_BF16;
  bool int8 = problem->format == GEMM_FORMAT_INT8 && (problem->y_type == GEMM_BF16 || problem->y_type == GEMM_F16);
  return problem->device.capability == 90 && (fp8 || int8) && problem->experts > 0 &&
         !kernel_problem_cancels(problem) && problem->experts * problem->n <= INT32_MAX;
}

/* Ids that are spread evenly give experts some rows more or fewer, of which longer tiles hold nearly all. */
int grouped_many_columns(const struct kernel_problem *problem) {
  double rows = (double)problem->m / (double)problem->experts;
  return rows <= GROUPED_MANY_COLUMNS_LEAST - 16 ? GROUPED_MANY_COLUMNS_LEAST : GROUPED_MANY_COLUMNS;
}

double grouped_many_us(const struct kernel_problem *problem) {
  static const double BYTES_A_US = 4.4e6, OPERATIONS_A_US = 1.15e9, BEGIN_US = 8;
  double experts = (double)problem->experts, pairs = (double)problem->m;
  double hit = experts * (1 - pow(1 - 1 / experts, pairs)), row = (double)problem->n * (double)problem->k;
  double reads = hit * row / BYTES_A_US, multiplies = 2 * pairs * row / OPERATIONS_A_US;
  return BEGIN_US + (reads > multiplies ? reads : multiplies);
}
