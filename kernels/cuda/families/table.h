/* All families of kernels of this backend. */
#pragma once

#include "family.h"

/* In the order in which parameters that are named without a family are looked for: the plain one first, then tiles. */
#define KERNEL_FAMILIES(ROW)                                                                                           \
  ROW(plain_kernels, variant_plain)                                                                                    \
  ROW(tile_kernels, tile_family)                                                                                       \
  ROW(library_kernels, library_family)                                                                                 \
  ROW(hopper_kernels, hopper_family)                                                                                   \
  ROW(few_kernels, few_family)                                                                                         \
  ROW(many_kernels, many_family)                                                                                       \
  ROW(fp8_many_kernels, fp8_many_family)                                                                               \
  ROW(int2_few_kernels, int2_few_family)                                                                               \
  ROW(int2_many_kernels, int2_many_family)                                                                             \
  ROW(int2a8_kernels, int2a8_family)                                                                                   \
  ROW(int4_few_kernels, int4_few_family)                                                                               \
  ROW(int4_many_kernels, int4_many_family)                                                                             \
  ROW(int4_zeros_kernels, int4_zeros_family)                                                                           \
  ROW(sm80_int2_kernels, sm80_int2_family)                                                                             \
  ROW(sm80_int4_kernels, sm80_int4_family)                                                                             \
  ROW(sm80_rows_kernels, sm80_rows_family)                                                                             \
  ROW(grouped_kernels, grouped_family)                                                                                 \
  ROW(grouped_many_kernels, grouped_many_family)                                                                       \
  ROW(grouped_int2_kernels, grouped_int2_family)                                                                       \
  ROW(grouped_int2_many_kernels, grouped_int2_many_family)                                                             \
  ROW(grouped_int4_kernels, grouped_int4_family)                                                                       \
  ROW(pairs_kernels, pairs_family)

#define ROW(kernels, variants)                                                                                         \
  extern const struct kernel_family kernels;                                                                           \
  extern const struct variant_family variants;
KERNEL_FAMILIES(ROW)
#undef ROW

/* NULL at the end. */
extern const struct kernel_family *const kernel_families[];
/* Their variants', likewise. */
extern const struct variant_family *const cuda_families[];

/* NULL where the variant is of no family of this backend, or is NULL. */
const struct kernel_family *kernel_family_of(const struct variant *variant);
