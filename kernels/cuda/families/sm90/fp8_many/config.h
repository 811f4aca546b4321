/* Products of rows of 8-bit codes with FP8 weights, with one scale or a scale a row, and with INT8 and INT2A8 weights,
 * for Hopper, from 65 rows of x on.
 *
 * A tile of y is `rows` rows of W by up to `columns` rows of x, the same number in each: copies that go beyond a matrix
 * are slower. One warp has bulk tensor copies of 128 of K run ahead into a ring; two or three warpgroups multiply their
 * share of the tile's rows of W each. FP8 sums leave the tensor cores every 128 of K where y is bf16, else after every
 * instruction (hopper/config.h says why), and are added up in registers while the tensor cores have the next. Tiles go
 * in waves of one a block, those of the same rows of W one after the other; where they are few, or few are left over,
 * the `split_k` blocks of a cluster have parts of a tile's K, and each adds up and writes a part of its columns.
 */
#pragma once

#include "../../../linkage.h"
#include "../../problem.h"

C_LINKAGE_BEGIN

enum {
  FP8_MANY_COLUMNS_LEAST = 80, /* rows of x a tile */
  FP8_MANY_COLUMNS_MOST = 128,
  FP8_MANY_STEP = 128, /* of K, and bytes */
  FP8_MANY_ROWS_LEAST = 128,
  FP8_MANY_ROWS_MOST = 256,
  FP8_MANY_SPLIT_MOST = 4,
  FP8_MANY_ALL = 96, /* configurations for a product, at most */
};

struct fp8_many_config {
  int rows;    /* of W a tile: 128, 192 or 256; INT2A8, and FP8 with y that is no bf16: 128; 256 with split_k 1 alone */
  int columns; /* rows of x a tile, at most: 80 (not INT2A8), 96, 104 (INT8, INT2A8: 112) or 128 */
  int split_k; /* blocks that share a tile's K: 1..4 */
  int group;   /* tiles of x that are taken before the next rows of W: 1..64 */
};

/* n / by as the upper half of n * inverse, for n * by below 2^32; inverse 0: by is 1. */
struct fp8_many_divisor {
  uint32_t by, inverse;
};

/* How a product is cut up. */
struct fp8_many_plan {
  int steps;            /* of a tile's K */
  int steps_of_block;   /* of these, at most, where blocks share them */
  int whole;            /* tiles that each block has for itself, before those of which each cluster has one */
  int w_tiles, x_tiles; /* tiles of y along N and along M */
  int columns;          /* rows of x a tile: a multiple of 8, */
  int width;            /* which the tensor cores take for so many: the least that config's columns may be */
  int blocks;           /* of the launch, */
  int split_k;          /* of a cluster of it */
  int group;
  struct fp8_many_divisor by_group, by_wide, by_last; /* tiles, and tiles of x, of a group; tiles of x of the last */
};

/* FP8 of 128 rows of W or more whose scales are no blocks', and INT8 and INT2A8 with y that is no sums, with more than
 * 64 rows of x, on Hopper. Pure. */
bool fp8_many_takes(const struct kernel_problem *problem);
/* False where there is no such kernel, or it does not fit the device. Pure. */
bool fp8_many_plan_for(const struct fp8_many_config *config, const struct kernel_problem *problem,
                       struct fp8_many_plan *out);
/* What the model holds for the fastest; *us: the microseconds that it foretells. Pure. */
struct fp8_many_config fp8_many_configure(const struct kernel_problem *problem, double *us);
/* What is worth a look, the model's first; `all`: what can run. How many, at most `most`. Pure. */
int fp8_many_candidates(const struct kernel_problem *problem, bool all, struct fp8_many_config *out, int most);

C_LINKAGE_END
