/* A product as sm80/packed/kernel.cuh is launched with it. */
#ifndef KERNELS_CUDA_FAMILIES_SM80_PACKED_PRODUCT_H
#define KERNELS_CUDA_FAMILIES_SM80_PACKED_PRODUCT_H

#include "../../../../../proto/gemm.h"

#include <stdint.h>

struct sm80_packed_product {
  int64_t m, n, k; /* m: at most SM80_PACKED_COLUMNS_MOST; k: as it is stored */
  enum gemm_format format;
  const void *tiles;    /* the weight: sm90/int2/layout.h, a8_layout.h where x is INT8, sm90/int4/layout.h */
  bool bf16_scales;     /* INT4: else f16 */
  const float *factors; /* [n], NVFP4's; or NULL */
  const void *x;        /* rows of k, zeros behind K; aligned to 16 bytes */
  enum gemm_type x_type;
  int64_t x_stride;     /* bytes, a multiple of 16 */
  const float *x_scale; /* [m], or NULL */
  const void *bias;     /* [n], or NULL */
  enum gemm_type bias_type;
  void *y; /* [m, n], aligned to an element; may be mapped host memory */
  enum gemm_type y_type;
  uint64_t y_stride; /* bytes */
  float *parts;      /* [blocks, parts of each, m, rows of W of a block], where K is shared by blocks */
};

#endif
