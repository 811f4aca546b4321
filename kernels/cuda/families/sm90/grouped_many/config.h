/* Products over experts of many rows each, INT8 and FP8, on Hopper's warpgroup matrix instructions: rows of x sorted by
 * expert (experts/route.h), W as the wide side of the instruction, a tile's rows of x as its columns.
 *
 * A tile of y is 256 rows of an expert's W by up to 144 rows of x: an expert of 256 rows, more or fewer by chance, has
 * two tiles nearly always, and a byte that comes from the L2 is multiplied often enough. Blocks stay: one warp copies W
 * and x ahead through a ring, across the borders of pieces; two warpgroups have 128 rows of W each, and while one adds
 * what left the tensor cores the other one has them. Pieces, a tile and 256 rows of its expert's W, are handed out as
 * blocks come for them. A piece's sums are of one block, so the bits do not depend on timing. */
#pragma once

#include "../../../linkage.h"
#include "../../problem.h"

#include <stdbool.h>
#include <stdint.h>

C_LINKAGE_BEGIN

enum {
  GROUPED_MANY_STEP = 128, /* bytes of K */
  GROUPED_MANY_ROWS = 256, /* of W a piece */
  GROUPED_MANY_COLUMNS = 144,
  GROUPED_MANY_COLUMNS_LEAST = 64, /* of a tile at most, that is worth a look */
  GROUPED_MANY_STAGES = 4,
  GROUPED_MANY_BOXES = 5, /* of x: 8, 16, 32, 64, 128 rows, of which a tile is put together */
};
#define GROUPED_MANY_BOX(i) (8 << (i))

/* INT8 and FP8 without blocks' scales, y of 16 bits (FP8: bf16), on Hopper. Pure. */
bool grouped_many_takes(const struct kernel_problem *problem);
/* Rows of x in a tile at most that are held for the fastest where ids are spread evenly. Pure. */
int grouped_many_columns(const struct kernel_problem *problem);
/* Microseconds, roughly. Pure. */
double grouped_many_us(const struct kernel_problem *problem);

C_LINKAGE_END
