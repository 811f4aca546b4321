/* Products over experts of few rows each, with INT4, MXFP4 and NVFP4 weights in LAYOUT_TILES4, on a warp's matrix
 * instruction as int4_few/kernel.cuh has it.
 *
 * Blocks stay, each with a run of blocks of 64 rows of W by tiles of up to 16 rows of x, which warps beside bring to
 * shared memory as f16 and which stay there from block to block. A stage of W is tiles that follow each other in
 * memory, of one block of rows or of the next; each warp takes half a tile of it. One more warp adds up what is of each
 * block. */
#pragma once

#include "../../../linkage.h"
#include "../../problem.h"
#include "../int4/form.h"

#include <stdbool.h>
#include <stdint.h>

C_LINKAGE_BEGIN

enum {
  GROUPED_INT4_COLUMNS = 16, /* rows of x, each of which takes two where it is f32 */
  GROUPED_INT4_NARROW = 8,   /* columns up to which twice as many warps multiply */
  GROUPED_INT4_STAGES_LEAST = 3,
  GROUPED_INT4_STAGES_MOST = 8,
  GROUPED_INT4_SUMS_PITCH = INT4_BLOCK_ROWS + 4, /* f32: of a row of x by a block of rows of W */
  GROUPED_INT4_X_PAD = 16, /* bytes between columns, so that eight of them lie in different banks */
};

/* How a launch is laid out in shared memory. */
struct grouped_int4_plan {
  int rows, columns; /* of x in a tile at most, and columns of the instruction */
  int warps;         /* that multiply */
  int tiles;         /* of 128 of K */
  int x_pitch;       /* bytes from a column to the next */
  int x_bytes, sums_bytes;
  int stages;
  int shared_bytes;
};

/* Whether a weight with experts may lie in tiles: this family is then all that reads it. Pure. */
bool grouped_int4_fits(int64_t n, int64_t k);
/* False where there is no room for the least stages. Pure. */
bool grouped_int4_plan_for(const struct int4_form *form, int rows, bool splits, int64_t k,
                           struct grouped_int4_plan *out);
/* Rows of x in a tile, as many as there is room for. Pure. */
int grouped_int4_rows(const struct int4_form *form, bool splits, int64_t k);
bool grouped_int4_takes(const struct kernel_problem *problem);
/* Whether rows of x take two columns. Pure. */
bool grouped_int4_splits(enum gemm_type x_type);
/* Microseconds, roughly, in tiles of up to so many rows. Pure. */
double grouped_int4_us(const struct kernel_problem *problem, int rows);

C_LINKAGE_END
