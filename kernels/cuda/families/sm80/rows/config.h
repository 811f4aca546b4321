/* Products of INT8 and FP8 weights by instructions that every device of compute capability 8.0 and newer has: dense
 * matrix ones of bytes, and of f16, which holds FP8's codes exactly, and copies to shared memory that no thread waits
 * for. FP8 with one scale or one a row.
 *
 * A warp has 32 rows of W and `columns` of x; `n_warps` of them, a team, share what 128 of K are of x; `k_warps` teams
 * of a block take these steps in turn, and split_k blocks have a slice of K each. Teams' sums are added in shared
 * memory, slices' by a second kernel, in their order, so the bits do not depend on timing. */
#ifndef KERNELS_CUDA_FAMILIES_SM80_ROWS_CONFIG_H
#define KERNELS_CUDA_FAMILIES_SM80_ROWS_CONFIG_H

#include "../../problem.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  SM80_ROWS_STEP = 128, /* of K */
  SM80_ROWS_UNITS = 2,  /* of 16 rows of W a warp */
  SM80_ROWS_COLUMNS_MOST = 128,
  SM80_ROWS_WARPS_MOST = 16,
  SM80_ROWS_SPLIT_MOST = 16,
  SM80_ROWS_STAGES_LEAST = 2,
  SM80_ROWS_STAGES_MOST = 8,
  SM80_ROWS_PITCH = SM80_ROWS_STEP + 16, /* bytes of a step's row in shared memory: no bank conflicts */
};

struct sm80_rows_config {
  int columns; /* 16, 32, 64 or, of INT8, 128 */
  int n_warps, k_warps, split_k;
};

struct sm80_rows_plan {
  int tiles;     /* of rows of W and columns */
  int row_tiles; /* of rows of W */
  int blocks;    /* which take tiles in turn; times split_k of them are launched */
  int slice;     /* steps of K of a block */
  int stages, slot_bytes, sums_bytes, shared_bytes;
};

/* Whether the kernel takes the product at all. Pure, as all of these. */
bool sm80_rows_takes(const struct kernel_problem *problem);
/* False where the configuration does not fit the product or the device. */
bool sm80_rows_plan_for(const struct sm80_rows_config *config, const struct kernel_problem *problem,
                        struct sm80_rows_plan *out);
/* Of device memory for sums of slices. */
uint64_t sm80_rows_parts_bytes(const struct sm80_rows_config *config, const struct kernel_problem *problem);
/* Microseconds by the cost model. */
double sm80_rows_us(const struct sm80_rows_config *config, const struct sm80_rows_plan *plan,
                    const struct kernel_problem *problem);
/* All that fit, by the cost model, the fastest first. Returns how many, at most `most`. */
enum { SM80_ROWS_CONFIGS = 1024 /* at most */ };
int sm80_rows_candidates(const struct kernel_problem *problem, struct sm80_rows_config *out, int most);

#ifdef __cplusplus
}
#endif
#endif
