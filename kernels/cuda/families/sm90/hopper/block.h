/* A block of Hopper's kernel for INT8 and FP8 (config.h): what it may be, and what it takes of a multiprocessor. */
#pragma once

#include "../../../linkage.h"
#include "../../problem.h"

#include <stdbool.h>
#include <stdint.h>

C_LINKAGE_BEGIN

enum { HOPPER_STEP = 256 /* bytes of K in a step of a row */, HOPPER_GROUP_ROWS = 64 /* of W, a warpgroup's */ };
enum { HOPPER_COLUMNS_MOST = 128, HOPPER_BLOCK_COLUMNS_MOST = 64 /* BLOCK: the registers hold no more */ };

struct hopper_config {
  int columns; /* rows of x at a time: 8, 16, 32, 64 or 128 */
  int groups;  /* warpgroups, each 64 rows of W: 1 to 3 */
  int rows;    /* of W in a block: a multiple of 8, at most 64 * groups */
  int split_k; /* blocks that share K: 1..8 */
  int ahead;   /* steps of 256 bytes of K under way: 2, 3, 4 or 6 */
};

/* Rows of x at a time, at most. Pure. */
int hopper_columns_most(enum gemm_scale scale);
/* Warpgroups that have registers for so many columns. Pure. */
int hopper_groups_most(int columns, enum gemm_scale scale);
/* Whether there is a kernel for it, and shared memory enough. Pure. */
bool hopper_config_valid(const struct hopper_config *config, enum gemm_scale scale);
/* Blocks that share a multiprocessor, by shared memory and registers. Pure. */
int64_t hopper_resident(const struct hopper_config *config, enum gemm_scale scale);
/* Eights of columns that a block of a cluster joins, at most. Pure. */
int hopper_places(const struct hopper_config *config);
/* Where in shared memory the sums of the other blocks of a cluster come: behind the ring of copies and behind what
 * takes its place when it has been read, then the scales of the rows of x and the barrier that counts the sums. Pure.
 */
int hopper_sums_offset(const struct hopper_config *config, enum gemm_scale scale);
/* Bytes of shared memory of a block. Pure. */
int hopper_shared_bytes(const struct hopper_config *config, enum gemm_scale scale);

C_LINKAGE_END
