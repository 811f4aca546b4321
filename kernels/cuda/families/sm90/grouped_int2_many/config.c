#include "config.h"

#include "../grouped_int2/config.h"

#include <math.h>

const int *grouped_int2_many_columns(enum gemm_type x_type) {
  /* 128 columns of scaled f16 leave no registers. */
  static const int of_f16[] = {32, 64, 96, 0}, of_bf16[] = {32, 64, 128, 0}, of_int8[] = {32, 128, 0};
  return x_type == GEMM_INT8 ? of_int8 : x_type == GEMM_F16 ? of_f16 : of_bf16;
}

int grouped_int2_many_columns_for(enum gemm_type x_type, int rows) {
  const int *all = grouped_int2_many_columns(x_type);
  int i = 0;
  while (all[i] < rows && all[i + 1] > 0)
    i++;
  return all[i];
}

static bool of_16_bits(enum gemm_type type) {
  return type == GEMM_F16 || type == GEMM_BF16;
}

bool grouped_int2_many_takes(const struct kernel_problem *problem) {
  bool codes = problem->format == GEMM_FORMAT_INT2A8;
  bool types = codes ? of_16_bits(problem->y_type) || problem->y_type == GEMM_F32
                     : of_16_bits(problem->x_type) && of_16_bits(problem->y_type);
  return problem->device.capability == 90 && (codes || problem->format == GEMM_FORMAT_INT2) && problem->tiled &&
         problem->experts > 0 && types;
}

/* Of each unit, by an H200: 256 rows of W by 128 of K (INT8: 256), with as many eights of columns as a tile has; wide
 * tiles have all of theirs. */
double grouped_int2_many_us(const struct kernel_problem *problem, int columns) {
  static const double BEGIN_US = 8;
  bool int8 = problem->format == GEMM_FORMAT_INT2A8, wide = columns > GROUPED_INT2_MANY_PAIRS;
  double experts = (double)problem->experts, rows = (double)problem->m / experts;
  double eights = wide ? columns / 8.0 : fmin(rows + sqrt(rows), columns) / 8;
  double unit = int8 ? 0.58 + 0.07 * eights : wide ? 0.4 + 0.08 * eights : 0.38 + 0.035 * eights;
  double units = ceil((double)problem->n / 256) * ceil((double)problem->k / (int8 ? 2 * GEMM_GROUP : GEMM_GROUP));
  return BEGIN_US + grouped_int2_tiles(problem, columns) * units * unit / problem->device.multiprocessors;
}
