/* Products of INT8 weights with many rows of x on Hopper: sums, scales, bias and y's type in one kernel.
 *
 * A tile is 128 rows of x by `columns` rows of W. One warp has bulk tensor copies of 128 bytes of K run ahead into a
 * ring; two warpgroups multiply 64 rows of x each, and write y while the ring fills for the next tile. Blocks stay and
 * take tiles in turn, those of the same rows of W one after the other, so that W is read from memory about once. */
#pragma once

#include "../../../linkage.h"
#include "../../problem.h"

C_LINKAGE_BEGIN

enum {
  MANY_ROWS = 128,      /* of x a tile */
  MANY_STEP = 128,      /* bytes of K */
  MANY_STAGES = 6,      /* steps under way; */
  MANY_STAGES_WIDE = 4, /* of tiles of 256 columns */
};

struct many_config {
  int columns; /* rows of W a tile: 128 or 256 */
  int group;   /* tiles of x that are taken before the next rows of W: 1..64 */
};

/* INT8 with y that is no sums, and more than 128 rows of x, on Hopper. Pure. */
bool many_takes(const struct kernel_problem *problem);
/* The one that leaves the fewest multiprocessors idle; *busy: the part of them that works, on average. Pure. */
struct many_config many_configure(const struct kernel_problem *problem, double *busy);
/* Microseconds, within a tenth of what an H200 took with 256 rows of x and more. Pure. */
double many_us(const struct many_config *config, const struct kernel_problem *problem);
bool many_config_valid(const struct many_config *config);
/* Bytes of shared memory of a block. Pure. */
int many_shared_bytes(int columns);

C_LINKAGE_END
