/* Products of f16 and bf16 rows with INT2 weights in LAYOUT_TILES2, and of rows of INT8 with INT2A8 weights in
 * LAYOUT_TILES2A8, for Hopper, from 9 or 17 rows on: W from registers, x from shared memory, on the warpgroup's matrix
 * instruction; up to 32 columns, unless y is f32, its sparse form. Which of them is told by x_type everywhere here.
 *
 * A tile of y is `rows` rows of W by `columns` rows of x, a unit of work 128 of K of it (INT8: 256). `rows` is 256, for
 * more than 64 columns of bf16 and INT8 192; for 16 columns also 192 and 128, for more than 64 of f16 also 192. Blocks
 * stay: with fewer tiles than half the device's blocks, `split_k` blocks have equal parts of a tile's K and each adds
 * up and writes its part of the tile's columns. Else tiles are done in waves of one a block, in which blocks read the
 * same rows of x and W at the same time; or those that do not make up whole waves, and one wave more, are shared
 * evenly: each block has one run of their units, and whoever has a tile's first adds up what the blocks behind it have
 * of the same tile. Sums are added in one order, so the bits do not depend on timing. */
#pragma once

#include "../../../../../proto/gemm.h"
#include "../../../linkage.h"

#include <stdbool.h>
#include <stdint.h>

C_LINKAGE_BEGIN

enum {
  INT2_MANY_COLUMNS_LEAST = 16,
  INT2_MANY_COLUMNS_MOST = 128,
  INT2_MANY_ROWS_LEAST = 128,
  INT2_MANY_ROWS_MOST = 256,
  INT2_MANY_ROWS_STEP = 64, /* a warpgroup's */
  INT2_MANY_SPLIT_MOST = 4
};

/* Whether tiles so wide have W multiplied by its scales before the products, for which f16 alone has the bits. */
#define INT2_MANY_SCALES_W(columns, f16) ((columns) > 64 && (f16))
#define INT2_MANY_NOTHING 0xffffffffu

struct int2_many_config {
  int columns; /* rows of x a tile: one of int2_many_columns */
  int split_k; /* blocks that share a tile's K; 1: all tiles in waves; 0: blocks have runs of units */
  int group;   /* tiles of x that are taken for the same rows of W, so that these are read from memory about once */
  int rows;    /* of W a tile: see int2_many_has */
};

/* n / by for n below 2^31, as the upper half of n * inverse, shifted; inverse 0: by is 1. */
struct int2_many_divisor {
  uint32_t inverse, shift;
};

/* How a product is cut up. */
struct int2_many_plan {
  int tiles_k;          /* units of a tile */
  int units;            /* of all tiles */
  int w_tiles, x_tiles; /* tiles of y along N and along M */
  int row_blocks;       /* of 64 rows of W */
  int blocks;           /* of the launch */
  int shared_units;     /* of tiles that blocks share: shared_each a block, one more for the first shared_more */
  int shared_each, shared_more;
  int waves; /* of whole tiles, one a block, behind these; the last may have fewer */
  struct int2_many_divisor by_tiles_k, by_split; /* by_split: the configuration's split_k, where it is not 0 */
};

/* Microseconds: of a unit, of what every block begins and ends with, and of adding up: runs of units, each block more
 * that has a run of the same tile, and each more that has an equal part. */
struct int2_many_prices {
  double unit, fixed, runs, share, part;
};

/* How wide tiles are that there are kernels for, narrowest first, 0 at the end. Pure. */
const int *int2_many_columns(enum gemm_type x_type);
/* Whether there is a kernel for tiles of so many rows of W by `columns` of x. Pure. */
bool int2_many_has(enum gemm_type x_type, int columns, int rows);
/* Rows from which this is faster than a few at a time, which for f32 y take twice the columns; f32 x always goes a few
 * at a time. Pure. */
int64_t int2_many_least(enum gemm_type x_type, enum gemm_type y_type);
/* Microseconds by the cost model. Pure. */
double int2_many_us(const struct int2_many_config *config, enum gemm_type x_type, const struct int2_many_plan *plan);
double int2_many_priced(const struct int2_many_config *config, const struct int2_many_prices *prices,
                        const struct int2_many_plan *plan);
/* What the cost model holds for the fastest on a device of `sms` multiprocessors. Pure. */
struct int2_many_config int2_many_configure(enum gemm_type x_type, int64_t m, int64_t n, int64_t k, int sms);
/* False where there is no such kernel or the product is too large. Pure. */
bool int2_many_plan_for(const struct int2_many_config *config, enum gemm_type x_type, int64_t m, int64_t n, int64_t k,
                        int sms, struct int2_many_plan *out);
/* The same of tiles of `rows` rows of W and units of `unit` of K. Pure. */
bool int2_many_cut(const struct int2_many_config *config, int rows, int unit, int64_t m, int64_t n, int64_t k, int sms,
                   struct int2_many_plan *out);
/* Bytes of memory that blocks leave sums of tiles in, whatever the product. Pure. */
uint64_t int2_many_sums_bytes(int sms);

/* Whether they are one kernel for m rows of x: groups that hold all tiles of x give one order. Pure. */
bool int2_many_same(const struct int2_many_config *left, const struct int2_many_config *right, int64_t m);

C_LINKAGE_END
