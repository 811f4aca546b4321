/* Products over experts of INT8, FP8, F16 and BF16 weights on Hopper's warpgroup matrix instructions: rows of x sorted
 * by expert (experts/route.h), W as the wide side of the instruction, a tile's rows of x as its columns.
 *
 * Blocks stay: one warp copies W and x ahead through a ring, across the borders of pieces, so that memory never rests;
 * one or two warpgroups of 64 rows of W multiply. Pieces, a tile and some rows of its expert's W, are handed out as
 * blocks come for them. A piece's sums are of one block, so the bits do not depend on timing. */
#pragma once

#include "../../../linkage.h"
#include "../../problem.h"

#include <stdbool.h>
#include <stdint.h>

C_LINKAGE_BEGIN

enum { GROUPED_STEP = 256 /* bytes of K */, GROUPED_COLUMNS_MOST = 128, GROUPED_STAGES_MOST = 16 };
/* Rows of x that the instruction takes at a time, which boxes of x have: 8, 16, 32, 64, 96, 128. */
enum { GROUPED_WIDTHS = 6 };
#define GROUPED_WIDTH(i) ((i) < 4 ? 8 << (i) : 32 * ((i)-1))

struct grouped_config {
  int columns; /* rows of x in a tile, at most: 8, 16, 32, 64, 128 */
  int groups;  /* warpgroups, each 64 rows of W: 1, 2 */
  int blocks;  /* of a multiprocessor: 1, 2 */
};

/* Steps that the ring holds; below 3 there is no such kernel. Pure. */
int grouped_stages(const struct grouped_config *config);
/* Bytes of shared memory of a block. Pure. */
int grouped_shared_bytes(const struct grouped_config *config);
/* Whether there is a kernel for it, and shared memory enough. Pure. */
bool grouped_config_valid(const struct grouped_config *config, enum gemm_scale scale);
/* INT8, FP8, F16 and BF16 on Hopper. Pure. */
bool grouped_takes(const struct kernel_problem *problem);
/* What measurements hold for the fastest where ids are spread evenly. Pure. */
struct grouped_config grouped_configure(const struct kernel_problem *problem);
/* Microseconds, roughly: for the weights of experts that are hit. Pure. */
double grouped_us(const struct kernel_problem *problem);

C_LINKAGE_END
