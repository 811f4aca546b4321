#include "config.h"

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

bool grouped_config_valid(const struct grouped_config *config) {
  bool columns = config->columns == 8 || config->columns == 16 || config->columns == 32 || config->columns == 64 ||
                 (config->columns == 128 && config->groups == 2);
  return columns && (config->groups == 1 || config->groups == 2) && (config->blocks == 1 || config->blocks == 2) &&
         grouped_stages(config) >= 3;
}
