/* A product over experts with INT4, MXFP4 or NVFP4 weights in tiles, as grouped_int4/kernel.cuh is launched with it. */
#ifndef KERNELS_CUDA_FAMILIES_SM90_GROUPED_INT4_PRODUCT_H
#define KERNELS_CUDA_FAMILIES_SM90_GROUPED_INT4_PRODUCT_H

#include "../../../experts/route.h"

/* Pointers are device memory. */
struct grouped_int4_product {
  int64_t n;             /* of the weight, for each expert */
  const void *tiles;     /* of all experts */
  bool large_scales;     /* as int4/scales.h says */
  bool bf16_scales;      /* else f16, or e2m1's */
  const float *factors;  /* [experts, n], NVFP4's; or NULL */
  const void *x;         /* rows by route, x_stride bytes apart, zeros behind k up to whole tiles, aligned to 16 */
  enum gemm_type x_type; /* F32, F16, BF16 */
  int64_t x_stride;
  const void *bias; /* [experts, n], or NULL */
  enum gemm_type bias_type;
  void *y; /* [pairs, n] */
  enum gemm_type y_type;
  uint64_t y_stride; /* bytes */
  bool y_sorted;
  struct experts_route route;
};

#endif
