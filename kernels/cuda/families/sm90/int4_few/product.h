/* A product as int4_few/kernel.cuh is launched with it. */
#ifndef KERNELS_CUDA_FAMILIES_SM90_INT4_FEW_PRODUCT_H
#define KERNELS_CUDA_FAMILIES_SM90_INT4_FEW_PRODUCT_H

#include "../../../../../proto/gemm.h"

#include <stdbool.h>
#include <stdint.h>

struct int4_few_product {
  int64_t m, n;         /* m: at most int4_few_rows_most */
  const void *tiles;    /* the weight */
  bool bf16_scales;     /* else f16, or e2m1's */
  const float *factors; /* [n], NVFP4's; or NULL */
  bool large_scales;    /* as int4/scales.h says */
  const void *x;        /* rows of K rounded up to 128, zeros behind K; aligned to 16 bytes */
  enum gemm_type x_type;
  uint64_t x_stride; /* bytes, a multiple of 16 */
  const void *bias;  /* [n], or NULL */
  enum gemm_type bias_type;
  void *y; /* [m, n], aligned to an element; may be mapped host memory */
  enum gemm_type y_type;
  uint64_t y_stride; /* bytes */
  void *sums;        /* INT4_FEW_SUMS_BYTES of words INT4_FEW_NOTHING, aligned to 16 bytes; left as they are */
};

#endif
