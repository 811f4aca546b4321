/* A product as int2a8/kernel.cuh is launched with it. */
#ifndef KERNELS_CUDA_FAMILIES_SM90_INT2A8_PRODUCT_H
#define KERNELS_CUDA_FAMILIES_SM90_INT2A8_PRODUCT_H

#include "../../../../../proto/gemm.h"

#include <stdint.h>

struct int2a8_product {
  int64_t m, n;         /* m: at most 8 * eights of the way */
  const void *tiles;    /* the weight */
  const int8_t *x;      /* rows of K rounded up to INT2A8_TILE_K, zeros behind K; aligned to 16 bytes */
  int64_t x_stride;     /* a multiple of 16 */
  const float *x_scale; /* [m] */
  const void *bias;     /* [n], or NULL */
  enum gemm_type bias_type;
  void *y; /* [m, n], aligned to an element; may be mapped host memory */
  enum gemm_type y_type;
  uint64_t y_stride; /* bytes */
};

#endif
