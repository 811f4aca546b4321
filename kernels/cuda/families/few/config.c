#include "config.h"

#include "../../heuristics/ranking.h"

#include <math.h>

/* Bytes of shared memory that a block may have. */
static int64_t shared_most(int capability) {
  return capability == 80 ? 163 * 1024 : capability < 90 ? 99 * 1024 : 227 * 1024;
}

int few_columns(int64_t m) {
  return m <= 8 ? 8 : FEW_COLUMNS_MOST;
}

/* Whole units, one of zeros behind them, and an odd number, so that neighbouring rows lie in different banks. */
int few_x_stride(int64_t k) {
  int64_t units = (k + FEW_UNIT - 1) / FEW_UNIT + 1;
  return (int)((units | 1) * FEW_UNIT);
}

int64_t few_shared_bytes(int64_t m, int64_t k) {
  int64_t sums = 2 * FEW_WARPS * few_columns(m) * FEW_PITCH * (int64_t)sizeof(float);
  int64_t scales = 2 * 2 * FEW_WARPS * FEW_ROWS * (int64_t)sizeof(float) + FEW_COLUMNS_MOST * (int64_t)sizeof(float);
  return m * few_x_stride(k) + sums + scales;
}

bool few_takes(const struct kernel_problem *problem) {
  int capability = problem->device.capability;
  bool fp8 = problem->format == GEMM_FORMAT_FP8;
  return (fp8 || problem->format == GEMM_FORMAT_INT8) && problem->m <= FEW_COLUMNS_MOST &&
         capability >= (fp8 ? 90 : 80) && problem->scale != GEMM_SCALE_BLOCK && problem->k_padded < 1 << 20 &&
         few_shared_bytes(problem->m, problem->k_padded) <= shared_most(capability);
}

bool few_config_valid(const struct few_config *config) {
  int k_warps = config->k_warps;
  return (k_warps == 1 || k_warps == 2 || k_warps == 4 || k_warps == 8 || k_warps == 16) && config->rows >= 2 &&
         config->rows % 2 == 0 && config->rows <= FEW_ROWS * (FEW_WARPS / k_warps);
}

/* Microseconds: the bytes of the busiest multiprocessor at the rate that what is under way allows, and a little for
 * every tile, whose sums its warps add up. */
double few_us(const struct few_config *config, const struct kernel_problem *problem) {
  int sms = problem->device.multiprocessors;
  int64_t tiles = (problem->n + config->rows - 1) / config->rows, rounds = (tiles + sms - 1) / sms;
  int64_t pairs = (problem->k_padded + 2 * FEW_UNIT - 1) / (2 * FEW_UNIT);
  int64_t each = (pairs + config->k_warps - 1) / config->k_warps, passes = (2 * each + FEW_PASS - 1) / FEW_PASS;
  double under_way = (double)config->rows * (double)problem->k_padded / (double)passes / 1024;
  double bytes = (double)rounds * config->rows * (double)problem->k_padded / 1024;
  double busy = fmin(1, (double)tiles / sms);
  double rate = (70 - 35 * busy) * fmin(1, sqrt(under_way / 100));                   /* KiB a microsecond */
  double idle = (double)(passes * FEW_PASS * config->k_warps) / (2 * (double)pairs); /* slots that hold nothing */
  return bytes / rate + 0.12 * (double)rounds + 0.02 * (double)(rounds * passes) * idle;
}

int few_candidates(const struct kernel_problem *problem, struct few_config *out, int most) {
  double costs[FEW_CONFIGS];
  int count = 0;
  most = most < FEW_CONFIGS ? most : FEW_CONFIGS;
  for (int k_warps = 1; k_warps <= FEW_WARPS; k_warps *= 2)
    for (int rows = 2; rows <= FEW_ROWS * (FEW_WARPS / k_warps); rows += 2) {
      struct few_config config = {.k_warps = k_warps, .rows = rows};
      count = ranking_insert(out, costs, sizeof *out, count, most, &config, few_us(&config, problem));
    }
  return count;
}

struct few_config few_configure(const struct kernel_problem *problem) {
  struct few_config best;
  (void)few_candidates(problem, &best, 1);
  return best;
}
