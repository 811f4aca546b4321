#include "block.h"

/* As the kernel has it. EIGHT_BYTES: of a warp's sums of eight columns. */
enum { WARP_ROWS = 16, EIGHT_BYTES = 512, BARRIER_BYTES = 16, STAGING_PITCH = HOPPER_GROUP_ROWS * 4 + 16 };
enum { SHARED_MOST = 227 * 1024 };

int hopper_places(const struct hopper_config *config) {
  return (config->columns / 8 + config->split_k - 1) / config->split_k;
}

static int larger(int a, int b) {
  return a > b ? a : b;
}

int hopper_sums_offset(const struct hopper_config *config, enum gemm_scale scale) {
  int slots = config->ahead + 1, columns = config->columns;
  int scales = scale == GEMM_SCALE_BLOCK ? slots * columns * 2 * (int)sizeof(float) : 0;
  int group = columns * (4 * EIGHT_BYTES / 8 + STAGING_PITCH);
  int x_scales = columns * (int)sizeof(float);
  return larger(slots * (config->rows + columns) * HOPPER_STEP + scales, config->groups * group) + x_scales +
         BARRIER_BYTES;
}

int hopper_shared_bytes(const struct hopper_config *config, enum gemm_scale scale) {
  int warps = (config->rows + WARP_ROWS - 1) / WARP_ROWS;
  int sums = (config->split_k - 1) * warps * hopper_places(config) * EIGHT_BYTES;
  /* The tensor cores read whole groups of rows, past the last slot's end where `rows` is fewer. */
  int past = (config->groups * HOPPER_GROUP_ROWS - config->rows) * HOPPER_STEP / 2;
  return 1024 + hopper_sums_offset(config, scale) + larger(sums, past);
}

int hopper_columns_most(enum gemm_scale scale) {
  return scale == GEMM_SCALE_BLOCK ? HOPPER_BLOCK_COLUMNS_MOST : HOPPER_COLUMNS_MOST;
}

int hopper_groups_most(int columns, enum gemm_scale scale) {
  return (columns == 32 || columns == 64) && scale != GEMM_SCALE_BLOCK ? 3 : 2;
}

bool hopper_config_valid(const struct hopper_config *config, enum gemm_scale scale) {
  int columns = config->columns;
  bool known = (columns == 8 || columns == 16 || columns == 32 || columns == 64 || columns == 128) &&
               (config->ahead == 2 || config->ahead == 3 || config->ahead == 4 || config->ahead == 6);
  return known && columns <= hopper_columns_most(scale) && config->groups >= 1 &&
         config->groups <= hopper_groups_most(columns, scale) && config->rows > 0 && config->rows % 8 == 0 &&
         config->rows <= config->groups * HOPPER_GROUP_ROWS && config->split_k >= 1 && config->split_k <= 8 &&
         hopper_shared_bytes(config, scale) <= SHARED_MOST;
}

int64_t hopper_resident(const struct hopper_config *config, enum gemm_scale scale) {
  int64_t fit = SHARED_MOST / (hopper_shared_bytes(config, scale) + 1024), most = 5 - config->groups;
  return fit < 1 ? 1 : fit < most ? fit : most;
}
