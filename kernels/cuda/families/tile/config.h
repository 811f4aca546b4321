/* Products by tiles whose sizes are set by hand: which combinations can run, and why others cannot. The kernel,
 * tile/kernel.cuh, is compiled at run time for each combination of block_m, block_n, block_k, num_warps, num_stages and
 * operands; the other parameters are arguments. Pure. */
#pragma once

#include "../../../variant.h"
#include "../problem.h"
#include "params.h"

/* "tile", with the parameters below in this order. */
extern const struct variant_family tile_family;
enum tile_parameter {
  TILE_BLOCK_M, /* rows of x */
  TILE_BLOCK_N, /* rows of W */
  TILE_BLOCK_K,
  TILE_GROUP_SIZE_M,
  TILE_NUM_WARPS,
  TILE_NUM_STAGES,
  TILE_SPLIT_K,
  TILE_SPLIT_K_MODE, /* enum tile_mode */
};

/* What follows from a combination. */
struct tile_plan {
  int element; /* of tile/kernel.cuh */
  int warps_m, warps_n, shared_bytes;
  int64_t tiles_m, tiles_n, steps;
  uint64_t turns_bytes; /* of slices that take turns, in the workspace */
  uint64_t sums_offset; /* behind them, of sums that slices keep there: those of their own, and with 2-bit weights */
  uint64_t sums_bytes;  /* those that take turns share */
};

/* Whether the combination can run. UNSUPPORTED naming the parameter, what it needs and what there is. */
MUST_CHECK enum status tile_plan(const struct kernel_problem *problem, const struct variant *variant,
                                 struct tile_plan *out, struct error *error);
/* The combination that can run with the fewest parameters changed, and of these the one that changes them least. False
 * where there is none within three changes. */
bool tile_nearest(const struct kernel_problem *problem, const struct variant *variant, struct variant *out);

/* Blocks of the variant that share a multiprocessor, about; 1 where it cannot run. */
int64_t tile_resident(const struct kernel_problem *problem, const struct variant *variant);
/* The count of slices with which all blocks run at once, 1 where they fill the device without. */
int tile_split_filling(const struct kernel_problem *problem, const struct variant *variant);
/* Slices and modes for the tile of `base`, those near tile_split_filling first. `all`: 1..128 in every mode. Returns
 * how many it wrote. */
int tile_splits(const struct kernel_problem *problem, const struct variant *base, bool all, struct variant *out,
                int most);

/* Compiler options of the combination, without what is an argument: ELEMENT, tile, warps, stages, architecture. */
enum { TILE_OPTIONS = 8, TILE_OPTION_BYTES = 48 };
struct tile_options {
  char text[TILE_OPTIONS][TILE_OPTION_BYTES];
  int count;
};
void tile_options(const struct kernel_device *device, const struct variant *variant, const struct tile_plan *plan,
                  struct tile_options *out);
