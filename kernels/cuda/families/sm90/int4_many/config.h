/* Products with INT4, MXFP4 and NVFP4 weights in LAYOUT_TILES4 of f16 and bf16 rows, and with INT4A8 weights in
 * LAYOUT_TILES4A8 of rows of INT8, for Hopper: W from registers, x from shared memory, on the warpgroup's matrix
 * instruction. How y is cut into tiles and these are shared out is int2_many/config.h's; a tile is 256 rows of W by
 * 16 (not INT8), 32, 64 or 128 of x (INT8: 192 by 128), a unit 128 of K (INT8: 256). */
#pragma once

#include "../int2_many/config.h"

C_LINKAGE_BEGIN

enum { INT4_MANY_COLUMNS_LEAST = 16, INT4_MANY_COLUMNS_MOST = 128 };

enum int4_many_kind {
  INT4_MANY_INT8,      /* scales of 128 of K or a row */
  INT4_MANY_INT8_FINE, /* of fewer, which take more registers: no tile is 128 wide */
  INT4_MANY_SCALED,    /* W is multiplied by its scales before the products */
  INT4_MANY_SUMS,      /* sums of a scale's group are, or beside 128 columns all sums so far, from group to group */
  INT4_MANY_EXACT,     /* the same, 64 columns wide alone: INT4 with y of f32, and scales that SCALED does not take */
  INT4_MANY_KINDS,
};

/* groups: that have a scale in 128 of K. f16 holds scaled numbers well enough for y of 16 bits, and both types those of
 * e2m1, whose scales have four bits at most. */
static inline enum int4_many_kind int4_many_kind_of(enum gemm_format format, enum gemm_type x_type,
                                                    enum gemm_type y_type, int groups) {
  if (format == GEMM_FORMAT_INT4A8)
    return groups > 1 ? INT4_MANY_INT8_FINE : INT4_MANY_INT8;
  if (format == GEMM_FORMAT_MXFP4 || format == GEMM_FORMAT_NVFP4)
    return INT4_MANY_SCALED;
  return x_type != GEMM_F16 ? INT4_MANY_SUMS : y_type == GEMM_F32 ? INT4_MANY_EXACT : INT4_MANY_SCALED;
}

/* Warpgroups that multiply, 64 rows of W each. */
static inline CPP_CONSTEXPR int int4_many_groups(enum int4_many_kind kind, int columns) {
  int widest_of_four = kind == INT4_MANY_SCALED || kind == INT4_MANY_SUMS ? 128 : kind == INT4_MANY_INT8_FINE ? 32 : 64;
  return columns > widest_of_four ? 3 : 4;
}

/* False where there is no such kernel or the product is too large. Pure. */
bool int4_many_plan_for(const struct int2_many_config *config, enum int4_many_kind kind, int64_t m, int64_t n,
                        int64_t k, int sms, struct int2_many_plan *out);
/* Microseconds by the cost model. Pure. */
double int4_many_us(const struct int2_many_config *config, enum int4_many_kind kind, const struct int2_many_plan *plan);
/* What the cost model holds for the fastest; false where nothing fits. Pure. */
bool int4_many_configure(enum int4_many_kind kind, int64_t m, int64_t n, int64_t k, int sms,
                         struct int2_many_config *out);

C_LINKAGE_END
