/* A product as sm80/int4/kernel.cuh is launched with it. */
#ifndef KERNELS_CUDA_FAMILIES_SM80_INT4_PRODUCT_H
#define KERNELS_CUDA_FAMILIES_SM80_INT4_PRODUCT_H

#include "../../../../../proto/gemm.h"

#include <stdint.h>

struct sm80_int4_product {
  int64_t m, n;         /* m: at most SM80_INT4_COLUMNS */
  const void *tiles;    /* the weight: sm90/int4/layout.h */
  bool bf16_scales;     /* else f16, or e2m1's */
  const float *factors; /* [n], NVFP4's; or NULL */
  const void *x;        /* rows of whole tiles of K, zeros behind K; aligned to 16 bytes */
  enum gemm_type x_type;
  int64_t x_stride; /* bytes, a multiple of 16 */
  const void *bias; /* [n], or NULL */
  enum gemm_type bias_type;
  void *y; /* [m, n], aligned to an element; may be mapped host memory */
  enum gemm_type y_type;
  uint64_t y_stride; /* bytes */
  float *parts;      /* [split_k, m, n rounded up to 64], where blocks share K */
};

#endif
