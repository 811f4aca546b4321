#include "config.h"

enum {
  LEAST_ROWS = 128,
  STAGING = 8 * 16 * 144 /* a warp's 16 rows of 128 bytes of y, and 16 more against conflicts */
};

bool many_takes(const struct hopper_product *product) {
  return product->format == GEMM_FORMAT_INT8 && product->m > LEAST_ROWS && product->y_type != GEMM_S32;
}

bool many_config_valid(const struct many_config *config) {
  return (config->columns == 128 || config->columns == 256) && config->group >= 1 && config->group <= 64;
}

int many_shared_bytes(int columns) {
  int scales = 2 * columns * (int)sizeof(float), stages = columns == 256 ? MANY_STAGES_WIDE : MANY_STAGES;
  return 1024 + stages * (MANY_ROWS + columns) * MANY_STEP + STAGING + scales + 256;
}

static double busy_of(const struct hopper_product *product, int sms, int columns) {
  int64_t tiles = (product->m + MANY_ROWS - 1) / MANY_ROWS * ((product->n + columns - 1) / columns);
  int64_t rounds = (tiles + sms - 1) / sms;
  double whole = (double)product->m * (double)product->n / ((double)tiles * MANY_ROWS * columns);
  return whole * (double)tiles / (double)(rounds * sms);
}

struct many_config many_configure(const struct hopper_product *product, int sms, double *busy) {
  /* The wider tile reads a quarter less from shared memory for the same sums. */
  double wide = busy_of(product, sms, 256), narrow = busy_of(product, sms, 128);
  struct many_config config = {.columns = wide >= 0.9 * narrow ? 256 : 128, .group = 16};
  *busy = config.columns == 256 ? wide : narrow;
  return config;
}
