/* Products of INT8 and FP8 weights on Hopper's warpgroup matrix instructions (sm_90a), scales, bias and y's type
 * included.
 *
 * A block takes `rows` rows of W as the wide side of the instruction and up to 128 rows of x as its columns, so that
 * few rows of x waste nothing; more are computed in tiles of 128. The blocks of a cluster share K (split_k); each eight
 * rows of y are joined by one of them, its own sums first and then the others' by rank, so the bits do not depend on
 * timing.
 *
 * FP8: Hopper cuts off the products of one instruction about 13 bits below the largest of them, and the sum it adds to
 * as well. Sums that leave the tensor core after every instruction (32 of K) keep a row of y within 6e-5, 2.8e-4 where
 * one element of x in 64 is a thousand times larger; every 128 of K within 1.6e-4 and 5.6e-4 (f32 y of 66 columns or
 * more, K up to 28672, H200). The second is enough, and faster, where y is rounded to bf16. */
#pragma once

#include "../../../linkage.h"
#include "../../problem.h"
#include "block.h"

#include <stdbool.h>
#include <stdint.h>

C_LINKAGE_BEGIN

/* INT8 and FP8, but for rows of y that are too short for the tensor cores' FP8, on Hopper. Pure. */
bool hopper_takes(const struct kernel_problem *problem);
/* What the cost model holds for the fastest. Pure. */
struct hopper_config hopper_configure(const struct kernel_problem *problem);
/* Microseconds that the model foretells. Pure. */
double hopper_us(const struct hopper_config *config, const struct kernel_problem *problem);
/* What can run; the first is hopper_configure's. The best by the model, then the best of each number of blocks that
 * share K with each number of warpgroups, then a few with half and with twice as many rows of x at a time as the model
 * takes; `all`: the HOPPER_ALL best there are, by the model's time. Returns how many, at most `most`, of which
 * HOPPER_CANDIDATES is enough for all but `all`. Pure. */
enum { HOPPER_CANDIDATES = 49, HOPPER_ALL = 1024 };
int hopper_candidates(const struct kernel_problem *problem, bool all, struct hopper_config *out, int most);
/* Those that can run and differ from `base` by a step in how K is shared, how much of it is under way or rows of W
 * alone, or in the first two against each other, the one with twice the columns and the one with half the warpgroups.
 * Returns how many. Pure. */
enum { HOPPER_NEAR = 12 };
int hopper_near(const struct hopper_config *base, enum gemm_scale scale, struct hopper_config out[HOPPER_NEAR]);
/* How a launch begins and lets the next one begin, where it may start before the kernel ahead of it has ended. */
struct hopper_start {
  bool dependent; /* it may */
  int beyond;     /* bytes of a row of W, behind the ring of copies, that are fetched into the L2 until x is there */
  int let;        /* steps before its end at which a block lets the next kernel start; 0: at once */
};
/* What measurements hold for the fastest. Pure. */
struct hopper_start hopper_start_of(const struct hopper_config *config, const struct kernel_problem *problem,
                                    bool dependent);
C_LINKAGE_END
