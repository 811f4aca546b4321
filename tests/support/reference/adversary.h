/* Operands that are made to do harm to sums: elements that dominate, that cancel, of one sign, that grow or fall along
 * K, subnormal ones, all at the type's limit. Every element follows from the seed and its place, so that a case can be
 * made smaller and stays as bad. Pure. */
#pragma once

#include "oracle.h"

struct adversary_case {
  uint64_t seed;
  struct gemm_weight shape;
  int64_t m;
  int64_t x_row, w_row; /* the first rows, of those that the seed has */
  enum gemm_type x_type, y_type, bias_type;
};

/* A case of this format and scale mode, with at most so many multiply-adds. */
void adversary_draw(uint64_t seed, enum gemm_format format, enum gemm_scale scale, int64_t terms_most,
                    struct adversary_case *out);
/* Its operands; given back as the oracle's own. */
void adversary_weight(const struct adversary_case *what, struct oracle_weight *out);
void adversary_x(const struct adversary_case *what, struct oracle_x *out);
/* [n]; NULL where it has none. The caller frees. */
float *adversary_bias(const struct adversary_case *what);

/* The smaller case number `step` of one that fails in row `row` of y; false behind the last. */
bool adversary_smaller(const struct adversary_case *what, int64_t row, int step, struct adversary_case *out);
/* What it is, in a line that names everything it follows from. */
void adversary_text(const struct adversary_case *what, char out[256]);

/* What must come: sums; of the magnitudes, `sizes`; of the magnitudes where a factor is a subnormal bf16, `lost`, which
 * some processors take for 0; and of |W| times the largest |x| of its group of K, `tops`. All [m, n]. */
struct adversary_reference {
  double *sums, *sizes, *lost, *tops;
};
void adversary_compute(const struct adversary_case *what, const struct oracle_weight *weight, const struct oracle_x *x,
                       const float *bias, struct adversary_reference *out);
void adversary_reference_free(struct adversary_reference *reference);

/* Norms of one row, which begins at y: of what it is off, of what it must be, of the sums of the magnitudes, and of the
 * `tops`, of each no more than these sums may be off for (`top_most`). What
 * rounding below the smallest normal number explains is no error, and neither is infinity where the end of y's type is
 * so near that `bound` reaches it; an element that nothing excuses makes `off` infinite. `spared`: elements not looked
 * at, because magnitudes add up to more than f32 holds. */
struct adversary_row {
  double off, value, size, top;
  int64_t spared;
};

/* What a row may be off: `value` times its norm, `size` times that of the sums of magnitudes, and `top` times that of
 * the tops, each of which counts as at most `top_most / top` of these sums. */
struct adversary_bound {
  double value, size, top, top_most;
};
double adversary_allowed(const struct adversary_bound *bound, const struct adversary_row *row);
struct adversary_bound adversary_bound(bool device, const struct gemm_weight *shape, enum gemm_type y_type);
struct adversary_row adversary_judge(const struct adversary_case *what, const struct adversary_bound *bound,
                                     const struct adversary_reference *reference, int64_t row, const void *y);
