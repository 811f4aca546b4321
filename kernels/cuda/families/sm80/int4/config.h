/* Products of INT4, MXFP4 and NVFP4 weights in tiles by instructions that every device of compute capability 8.0 and
 * newer has. Eight rows of x at a time: a block has 64 rows of W, takes four tiles of K at a time, which follow each
 * other in memory, and each of its eight warps has half a tile. split_k blocks have a part of K each, whose sums a
 * second kernel adds up in their order, so the bits do not depend on timing. */
#ifndef KERNELS_CUDA_FAMILIES_SM80_INT4_CONFIG_H
#define KERNELS_CUDA_FAMILIES_SM80_INT4_CONFIG_H

#include "../../problem.h"
#include "../../sm90/int4/form.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  SM80_INT4_COLUMNS = 8,  /* rows of x at a time */
  SM80_INT4_TOGETHER = 4, /* tiles of a turn */
  SM80_INT4_WARPS = 2 * SM80_INT4_TOGETHER,
  SM80_INT4_SPLIT_MOST = 16,
  SM80_INT4_STAGES_LEAST = 2, /* turns in shared memory */
  SM80_INT4_STAGES_MOST = 4,
  SM80_INT4_PADDING = 16, /* bytes behind a tile's row of x in shared memory, and numbers behind a row of sums */
};

struct sm80_int4_plan {
  int row_blocks, tiles, turns; /* of W; of K; of which some tiles each, the last perhaps fewer */
  int split_k;
  int stages, x_row_bytes, slot_bytes, shared_bytes;
  int groups, zeros_at, half_bytes; /* as int4_form */
  bool zeros;
};

/* Whether the kernel takes the product at all. Pure, as all of these. */
bool sm80_int4_takes(const struct kernel_problem *problem);
/* False where so many blocks for a part of K each do not fit the product or the device; m: rows of a go. */
bool sm80_int4_plan_for(int split_k, const struct kernel_problem *problem, int64_t m, struct sm80_int4_plan *out);
/* Of device memory for sums of parts of K. */
uint64_t sm80_int4_parts_bytes(int split_k, const struct kernel_problem *problem, int64_t m);
/* Microseconds by the cost model, of all rows. */
double sm80_int4_us(int split_k, const struct kernel_problem *problem);

#ifdef __cplusplus
}
#endif
#endif
