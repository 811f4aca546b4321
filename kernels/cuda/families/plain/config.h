/* How the plain kernels cut K: a block that had a K of millions by itself would keep its place on the device for
 * seconds, with the rest of it idle. Pure. */
#pragma once

#include "../../linkage.h"

#include <stdint.h>

C_LINKAGE_BEGIN

enum { PLAIN_SLICE_ALIGN = 512 }; /* of K: whole groups, and whole steps of a warp */

/* Slices of K, each with sums of its own in the workspace, which are added in their order; 1: none. */
struct plain_cut {
  int64_t slices, slice_k;
};

/* `blocks` compute [m, n] on so many multiprocessors; sums of a slice have 4 bytes an element. */
struct plain_cut plain_cut(int64_t m, int64_t n, int64_t k, int64_t blocks, int multiprocessors,
                           uint64_t workspace_bytes);

C_LINKAGE_END
