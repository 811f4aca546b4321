/* A product over experts with INT2 weights in tiles, as the kernels for it are
 * launched with it. */
#ifndef KERNELS_CUDA_FAMILIES_SM90_GROUPED_INT2_PRODUCT_H
#define KERNELS_CUDA_FAMILIES_SM90_GROUPED_INT2_PRODUCT_H

#include "../../../experts/route.h"

/* Pointers are device memory. */
struct grouped_int2_product {
  int64_t pairs, n, k; /* of the weight, for each expert */
  int experts;
  const void *tiles;     /* of all experts */
  const void *x;         /* [pairs] by route, x_stride bytes apart, zeros behind k up to
                            whole groups, aligned to 16 */
  enum gemm_type x_type; /* F32, F16, BF16 */
  int64_t x_stride;
  const void *bias; /* [experts, n], or NULL */
  enum gemm_type bias_type;
  void *y; /* [pairs, n] */
  enum gemm_type y_type;
  uint64_t y_stride; /* bytes */
  bool y_sorted;
  bool splits; /* a row of x takes two columns, so that sums are exact enough
                  for f32 y */
  struct experts_route route;
};

#endif
