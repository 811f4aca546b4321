/* Products of weights of 2 and 4 bits in tiles by instructions that every device of compute capability 8.0 and newer
 * has: dense matrix ones, whose left operand is made of W's codes in registers, and copies to shared memory that no
 * thread waits for. Up to 64 rows of x at a time.
 *
 * A warp has `units` times 16 rows of W; `n_warps` of them, a team, share what a group of 128 of K is of x; `k_warps`
 * teams of a block take the groups in turn. Their steps along K for all blocks of rows, one after another, are shared
 * out to `blocks` evenly: a block ends one block of rows, has others whole, and begins one. Teams' sums are added in
 * shared memory, those of parts of K by a second kernel, in their order, so the bits do not depend on timing. */
#pragma once

#include "../../../linkage.h"
#include "../../problem.h"
#include "../../sm90/int4/form.h"
#include "../shares.h"

C_LINKAGE_BEGIN

enum {
  SM80_PACKED_COLUMNS_MOST = 64,
  SM80_PACKED_F32_MOST = 16, /* rows of f32 x */
  SM80_PACKED_WARPS_MOST = 16,
  SM80_PACKED_UNITS_MOST = 4,
  SM80_PACKED_FOLDED_WARPS = 4,  /* of folded.cuh, at least, so that a warp copies few rows of x */
  SM80_PACKED_FOLDED_STAGES = 4, /* the same; warps are not in step */
  SM80_PACKED_BLOCKS_MOST = 1 << 16,
  SM80_PACKED_GROUPS = 2,       /* of K that a team takes at a time; of f32 x one */
  SM80_PACKED_STAGES_LEAST = 2, /* such turns of a team in shared memory */
  SM80_PACKED_STAGES_MOST = 8,
  SM80_PACKED_INT2_BYTES = 544, /* codes and scales of 16 rows of INT2 and a group */
  SM80_PACKED_PADDING = 16,     /* bytes behind a group's row of x in shared memory, and numbers behind one of sums */
};

struct sm80_packed_config {
  int units, n_warps, k_warps;
  int blocks; /* of the launch */
};

struct sm80_packed_plan {
  int columns;    /* of sums: 8, 16, 32 or 64 */
  bool folded;    /* by the kernel of folded.cuh */
  int groups;     /* of K of a team's turn */
  int row_blocks; /* of W */
  int rows;       /* of W of one */
  int blocks;     /* of the launch */
  struct sm80_shares shares;
  struct int4_form form; /* of 4 bits */
  int stages, x_row_bytes, slot_bytes, sums_bytes, shared_bytes;
};

/* Rows of x of a go. */
int64_t sm80_packed_rows_most(const struct kernel_problem *problem);
/* Columns of sums for so many rows of x. */
int sm80_packed_columns(int64_t m);
/* Whether the kernel takes the product at all. */
bool sm80_packed_takes(const struct kernel_problem *problem);
/* False where the configuration does not fit the product or the device; m: rows of a go. Pure, as all of these. */
bool sm80_packed_plan_for(const struct sm80_packed_config *config, const struct kernel_problem *problem, int64_t m,
                          struct sm80_packed_plan *out);
/* The same for all rows of the problem, a go after another. */
bool sm80_packed_fits(const struct sm80_packed_config *config, const struct kernel_problem *problem);
/* Of device memory for sums of parts of K; m: as above. */
uint64_t sm80_packed_parts_bytes(const struct sm80_packed_plan *plan, int64_t m);
/* Microseconds by the cost model. */
double sm80_packed_us(const struct sm80_packed_config *config, const struct kernel_problem *problem);
/* All that fit, by the cost model, the fastest first. Returns how many, at most `most`. */
enum { SM80_PACKED_CONFIGS = 1024 /* at most */ };
int sm80_packed_candidates(const struct kernel_problem *problem, struct sm80_packed_config *out, int most);

C_LINKAGE_END
