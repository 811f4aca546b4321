/* Products over experts of some rows each, with INT2 weights in LAYOUT_TILES2 and f16 or bf16 rows, and with INT2A8
 * weights in LAYOUT_TILES2A8, on the products of int2_many/kernel.cuh: INT2 by pairs of x in tiles of up to 32 rows of
 * x, else W is unpacked.
 *
 * A tile of y is 256 rows of an expert's W (bf16 and INT8 in tiles of 128 columns: 192) by a tile of the route. Blocks
 * stay and take such pieces as they come for them. Copies and pairs run ahead across the borders of pieces; what is
 * multiplied of a piece is as many columns as it has, to the next eight. A piece's sums are of one block, so the bits
 * do not depend on timing. */
#pragma once

#include "../../../linkage.h"
#include "../../problem.h"

#include <stdbool.h>
#include <stdint.h>

C_LINKAGE_BEGIN

enum {
  GROUPED_INT2_MANY_PAIRS = 32, /* columns of tiles up to which they are multiplied by pairs of x */
  GROUPED_INT2_MANY_COLUMNS_MOST = 128,
  GROUPED_INT2_MANY_BOXES = 5, /* of x: 8, 16, 32, 64, 128 rows, of which a tile is put together */
};
#define GROUPED_INT2_MANY_BOX(i) (8 << (i))

/* How wide tiles are that there are kernels for, INT8: of INT2A8 weights, narrowest first, 0 at the end. Pure. */
const int *grouped_int2_many_columns(enum gemm_type x_type);
/* The narrowest of these that has room for tiles of so many rows. Pure. */
int grouped_int2_many_columns_for(enum gemm_type x_type, int rows);
bool grouped_int2_many_takes(const struct kernel_problem *problem);
/* Microseconds, roughly, with tiles so wide. Pure. */
double grouped_int2_many_us(const struct kernel_problem *problem, int columns);

C_LINKAGE_END
