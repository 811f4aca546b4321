/* What launchers are given of a call. */
#pragma once

#include "../state.h"
#include "family.h"
#include "sm90/hopper/product.h"
#include "tiles.h"

struct kernel_problem kernel_call_problem(const struct backend *backend, const struct kernel_call *call);
/* Of a row of x, as far as a kernel of tiles reads it; rows may lie further apart. */
int64_t kernel_call_x_bytes(const struct kernel_call *call);
/* With a weight in rows of 8-bit codes. */
struct hopper_product kernel_call_rows(const struct kernel_call *call);
/* With a weight in tiles; without sums. */
struct tiles_product kernel_call_tiles(const struct kernel_call *call);
/* Its rows from `row` on, `most` of them where there are so many. */
struct tiles_product kernel_call_part(const struct tiles_product *product, int64_t row, int64_t most);
