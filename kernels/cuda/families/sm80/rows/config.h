/* Products of INT8 and FP8 weights by instructions that every device of compute capability 8.0 and newer has: dense
 * matrix ones of bytes, and of f16, which holds FP8's codes exactly, and copies to shared memory that no thread waits
 * for. FP8 with one scale or one a row.
 *
 * A tile of y is `columns` rows of x by `rows` rows of W. The steps of K of all tiles, one after another, are shared
 * out to blocks evenly: a block ends one tile, has others whole, and begins one. Sums of parts of tiles are added by a
 * second kernel, in their order, so the bits do not depend on timing. */
#pragma once

#include "../../../linkage.h"
#include "../../problem.h"
#include "../shares.h"

C_LINKAGE_BEGIN

/* Tiles: columns and rows; of a warp, 16 columns and 8 rows each; warps along both; blocks that a multiprocessor has
 * registers for; whether FP8 has them, too. */
#define SM80_ROWS_TILES(ROW)                                                                                           \
  ROW(16, 128, 1, 4, 1, 4, 4, true)                                                                                    \
  ROW(32, 128, 2, 4, 1, 4, 3, true)                                                                                    \
  ROW(64, 64, 2, 4, 2, 2, 3, true)                                                                                     \
  ROW(64, 256, 4, 4, 1, 8, 1, true)                                                                                    \
  ROW(128, 64, 4, 4, 2, 2, 2, false)                                                                                   \
  ROW(128, 128, 4, 4, 2, 4, 1, true)                                                                                   \
  ROW(128, 256, 4, 8, 2, 4, 1, false)

enum {
  SM80_ROWS_STEP = 128, /* of K */
  SM80_ROWS_STAGES_LEAST = 2,
  SM80_ROWS_STAGES_MOST = 8,
  SM80_ROWS_BLOCKS_MOST = 1 << 20,
};

struct sm80_rows_config {
  int columns, rows; /* one of the tiles */
  int blocks;        /* of the launch */
};

struct sm80_rows_plan {
  int tiles, ends; /* all; along M */
  int stages, shared_bytes;
  struct sm80_shares shares;
};

/* Whether the kernel takes the product at all. Pure, as all of these. */
bool sm80_rows_takes(const struct kernel_problem *problem);
/* False where the configuration does not fit the product or the device. */
bool sm80_rows_plan_for(const struct sm80_rows_config *config, const struct kernel_problem *problem,
                        struct sm80_rows_plan *out);
/* Of device memory for sums of parts of tiles. */
uint64_t sm80_rows_parts_bytes(const struct sm80_rows_config *config, const struct sm80_rows_plan *plan);
/* Microseconds by the cost model. */
double sm80_rows_us(const struct sm80_rows_config *config, const struct sm80_rows_plan *plan,
                    const struct kernel_problem *problem);
/* What may be the fastest, by the cost model, the best guess first. Returns how many, at most `most`. */
enum { SM80_ROWS_CONFIGS = 96 /* at most */ };
int sm80_rows_candidates(const struct kernel_problem *problem, struct sm80_rows_config *out, int most);

C_LINKAGE_END
