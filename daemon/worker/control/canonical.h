/* A split weight's part: rows n_begin .. n_begin + n of a canonical weight, in canonical form of its own. Pure. */
#pragma once

#include "../../../proto/gemm.h"

/* Checks that `part` can be cut out of a weight of `n_total` rows at `n_begin` and computes both layouts. BLOCK
 * scales span 128 rows, so that their parts begin at multiples of 128. */
MUST_CHECK enum status canonical_part_check(const struct gemm_weight *part, int64_t n_begin, int64_t n_total,
                                            struct gemm_layout *whole_layout, struct gemm_layout *part_layout,
                                            struct error *error);
/* Copies the part's codes and scales; `to` has part_layout->total_bytes. */
void canonical_part_copy(enum gemm_scale scale, const struct gemm_layout *whole_layout, const void *whole,
                         int64_t n_begin, const struct gemm_layout *part_layout, void *to);
