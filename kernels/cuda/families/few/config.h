/* Products of INT8 and FP8 weights with up to 16 rows of x, on devices of compute capability 8.0 (FP8: 9.0) and later:
 * W goes from memory into registers in the order of the matrix instructions' operand, x lies in shared memory.
 *
 * A block of 16 warps takes tiles of W in turn, `rows` rows each, and fetches the next tile while it multiplies: every
 * thread has 16 loads of 16 bytes under way, 128 KB a multiprocessor, and no wait but the one for its own oldest load.
 * Warps that share K add their sums in shared memory in the order of their numbers, so the bits do not depend on
 * timing.
 *
 * FP8 codes become f16, which holds them exactly, and their products are summed in f32: a row of y is within 1e-6 of
 * its norm before it is rounded. */
#pragma once

#include "../../linkage.h"
#include "../problem.h"

C_LINKAGE_BEGIN

enum {
  FEW_COLUMNS_MOST = 16,
  FEW_WARPS = 16,
  FEW_ROWS = 16,  /* of W a warp */
  FEW_UNIT = 64,  /* bytes of K that a warp multiplies at a time */
  FEW_PASS = 8,   /* units of a warp that are under way */
  FEW_PITCH = 20, /* of a column of sums: no bank conflicts */
};

struct few_config {
  int k_warps; /* that share K: 1, 2, 4, 8 or 16; the others have rows of their own */
  int rows;    /* of W in a tile: even, at most 16 * (16 / k_warps) */
};

/* Whether the device has a kernel for the product: INT8 or FP8 with one scale or one a row, up to 16 rows of x that fit
 * into shared memory. Pure. */
bool few_takes(const struct kernel_problem *problem);
/* What the cost model holds for the fastest. Pure. */
struct few_config few_configure(const struct kernel_problem *problem);
/* Microseconds by the cost model. Pure. */
double few_us(const struct few_config *config, const struct kernel_problem *problem);
/* All that can run, by the model's time, the first as above. Returns how many, at most `most`. Pure. */
enum { FEW_CONFIGS = FEW_ROWS * (2 * FEW_WARPS - 1) / 2 /* at most */ };
int few_candidates(const struct kernel_problem *problem, struct few_config *out, int most);
bool few_config_valid(const struct few_config *config);
/* Columns of sums that the instructions make: 8 or 16. Pure. */
int few_columns(int64_t m);
/* Bytes from one row of x to the next in shared memory; bytes of shared memory of a block. Pure. */
int few_x_stride(int64_t k);
int64_t few_shared_bytes(int64_t m, int64_t k);

C_LINKAGE_END
