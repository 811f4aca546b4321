#include "config.h"

enum {
  LEAST_ROWS = 128,
  STAGING = 8 * 16 * 144 /* a warp's 16 rows of 128 bytes of y, and 16 more against conflicts */
};

bool many_takes(const struct kernel_problem *problem) {
  return problem->device.capability == 90 && problem->format == GEMM_FORMAT_INT8 && problem->m > LEAST_ROWS &&
         problem->y_type != GEMM_S32;
}

bool many_config_valid(const struct many_config *config) {
  return (config->columns == 128 || config->columns == 256) && config->group >= 1 && config->group <= 64;
}

int many_shared_bytes(int columns) {
  int scales = 2 * columns * (int)sizeof(float), stages = columns == 256 ? MANY_STAGES_WIDE : MANY_STAGES;
  return 1024 + stages * (MANY_ROWS + columns) * MANY_STEP + STAGING + scales + 256;
}

static double busy_of(const struct kernel_problem *problem, int columns) {
  int sms = problem->device.multiprocessors;
  int64_t tiles = (problem->m + MANY_ROWS - 1) / MANY_ROWS * ((problem->n + columns - 1) / columns);
  int64_t rounds = (tiles + sms - 1) / sms;
  double whole = (double)problem->m * (double)problem->n / ((double)tiles * MANY_ROWS * columns);
  return whole * (double)tiles / (double)(rounds * sms);
}

struct many_config many_configure(const struct kernel_problem *problem, double *busy) {
  /* The wider tile reads a quarter less from shared memory for the same sums. */
  double wide = busy_of(problem, 256), narrow = busy_of(problem, 128);
  struct many_config config = {.columns = wide >= 0.9 * narrow ? 256 : 128, .group = 16};
  *busy = config.columns == 256 ? wide : narrow;
  return config;
}

double many_us(const struct many_config *config, const struct kernel_problem *problem) {
  /* Fitted to an H200, 28 products; a tile that goes beyond x costs all others their time. */
  static const double launch = 2.6, tile = 1, tile_wide = 2, step = 0.33, step_wide = 0.63, beyond = 1.15;
  int64_t tiles = (problem->m + MANY_ROWS - 1) / MANY_ROWS * ((problem->n + config->columns - 1) / config->columns);
  int64_t rounds = (tiles + problem->device.multiprocessors - 1) / problem->device.multiprocessors;
  int64_t steps = (problem->k_padded + MANY_STEP - 1) / MANY_STEP;
  double each = config->columns == 256 ? tile_wide + (double)steps * step_wide : tile + (double)steps * step;
  return (launch + (double)rounds * each) * (problem->m % MANY_ROWS != 0 ? beyond : 1);
}
