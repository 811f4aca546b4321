#include "config.h"

#include <math.h>

/* FIXED: barriers, what is said of pieces, scales and rows of y, and up to 1 KiB before the ring. */
enum { SHARED_MOST = 227 * 1024, FIXED = 5 * 1024, MULTIPROCESSOR = 233472, BLOCK_RESERVED = 1024 };

/* Rows of y of a warp on their way: 8 by 16 of 4 bytes, 16 bytes more a row; see grouped/kernel.cuh. */
static int staging_bytes(const struct grouped_config *config) {
  return config->groups * 4 * 8 * 80;
}

static int stage_bytes(const struct grouped_config *config) {
  return GROUPED_STEP * (64 * config->groups + config->columns);
}

int grouped_stages(const struct grouped_config *config) {
  int room = config->blocks == 1 ? SHARED_MOST : MULTIPROCESSOR / config->blocks - BLOCK_RESERVED;
  int stages = (room - FIXED - staging_bytes(config)) / stage_bytes(config);
  return stages < GROUPED_STAGES_MOST ? stages : GROUPED_STAGES_MOST;
}

int grouped_shared_bytes(const struct grouped_config *config) {
  return FIXED + staging_bytes(config) + grouped_stages(config) * stage_bytes(config);
}

bool grouped_config_valid(const struct grouped_config *config, enum gemm_scale scale) {
  bool columns = config->columns == 8 || config->columns == 16 || config->columns == 32 || config->columns == 64 ||
                 (config->columns == 128 && config->groups == 2 && scale != GEMM_SCALE_BLOCK);
  return columns && (config->groups == 1 || config->groups == 2) && (config->blocks == 1 || config->blocks == 2) &&
         grouped_stages(config) >= 3;
}

bool grouped_takes(const struct kernel_problem *problem) {
  bool format =
      problem->format == GEMM_FORMAT_INT8 || problem->format == GEMM_FORMAT_FP8 || gemm_is_wide(problem->format);
  return problem->device.capability == 90 && format && problem->experts > 0 && !kernel_problem_cancels(problem) &&
         problem->experts * problem->n <= INT32_MAX;
}

/* A tile as long as an expert's rows mostly are keeps W from being read again; long ones want more rows of W for the
 * same x. */
struct grouped_config grouped_configure(const struct kernel_problem *problem) {
  double rows = (double)problem->m / (double)problem->experts;
  if (rows < 1)
    return (struct grouped_config){.columns = 16, .groups = 1, .blocks = 1};
  if (rows < 8)
    return (struct grouped_config){.columns = 64, .groups = 1, .blocks = 1};
  bool wide = rows >= 64 && problem->scale != GEMM_SCALE_BLOCK;
  return (struct grouped_config){.columns = wide ? 128 : 64, .groups = 2, .blocks = 1};
}

double grouped_us(const struct kernel_problem *problem) {
  static const double BYTES_A_US = 4.5e6, OPERATIONS_A_US = 8e8, BEGIN_US = 3;
  double experts = (double)problem->experts, pairs = (double)problem->m;
  double hit = experts * (1 - pow(1 - 1 / experts, pairs)), row = (double)problem->n * (double)problem->k;
  row *= gemm_is_wide(problem->format) ? 2 : 1;
  double reads = hit * row / BYTES_A_US, multiplies = 2 * pairs * row / OPERATIONS_A_US;
  return BEGIN_US + (reads > multiplies ? reads : multiplies);
}
