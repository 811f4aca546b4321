/* Products over experts of few rows each, with INT2 weights in LAYOUT_TILES2,
 * on a warp's sparse matrix instruction as int2_few/kernel.cuh has it: W is not
 * unpacked.
 *
 * Blocks stay, each with an equal share of all blocks of 64 rows of W of all
 * tiles of up to eight rows of x, of which warps beside make what the
 * instruction takes. A share's W, tiles of 128 of K of a block of rows, one
 * behind the other, is cut into equal runs for eight warps: first whole blocks
 * of rows, which end together, then parts of those that are left, whose sums
 * are added up in the order of K. */
#pragma once

#include "../../../linkage.h"
#include "../../problem.h"

#include <stdbool.h>
#include <stdint.h>

C_LINKAGE_BEGIN

enum {
  GROUPED_INT2_COLUMNS = 8, /* of the instruction: rows of x, each of which
                               takes two where it is split */
  GROUPED_INT2_WARPS = 8,
  GROUPED_INT2_STAGES_LEAST = 3,
  GROUPED_INT2_STAGES_MOST = 8,
  GROUPED_INT2_X_BYTES = 512, /* of 128 of K and a column, as the instruction takes it */
};

/* How a launch is laid out in shared memory. */
struct grouped_int2_plan {
  int rows, columns;       /* of x in a tile at most, and columns of the instruction */
  int groups, multipliers; /* of 128 of K; those that a row of multipliers has
                              room for */
  int x_bytes, multiplier_bytes, sums_bytes;
  int stages;
  int shared_bytes;
};

/* Whether a weight with experts may lie in tiles: these kernels are then all
 * that reads it. Pure. */
bool grouped_int2_fits(int64_t n, int64_t k);
/* False where there is no room for three stages. Pure. */
bool grouped_int2_plan_for(int rows, bool splits, int64_t k, struct grouped_int2_plan *out);
/* Rows of x in a tile, as many as there is room for. Pure. */
int grouped_int2_rows(bool splits, int64_t k);
/* As many as measurements hold for the fastest where ids are drawn evenly. Pure. */
int grouped_int2_rows_for(const struct kernel_problem *problem);
bool grouped_int2_takes(const struct kernel_problem *problem);
double grouped_int2_us(const struct kernel_problem *problem);
/* Tiles of up to so many rows of x, where ids are drawn evenly. Pure. */
double grouped_int2_tiles(const struct kernel_problem *problem, int columns);

C_LINKAGE_END
