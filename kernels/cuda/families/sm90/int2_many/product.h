/* A product as int2_many/kernel.cuh is launched with it. */
#ifndef KERNELS_CUDA_FAMILIES_SM90_INT2_MANY_PRODUCT_H
#define KERNELS_CUDA_FAMILIES_SM90_INT2_MANY_PRODUCT_H

#include "../../../../../proto/gemm.h"

#include <stdbool.h>
#include <stdint.h>

struct int2_many_product {
  int64_t m, n;
  const void *tiles;     /* the weight: INT2, or INT2A8 where x is INT8 */
  enum gemm_type x_type; /* F16, BF16 or INT8 */
  const float *x_scale;  /* [m], INT8 */
  const void *bias;      /* [n], or NULL */
  enum gemm_type bias_type;
  void *y; /* [m, n], aligned to an element */
  enum gemm_type y_type;
  uint64_t y_stride;         /* bytes */
  bool large_scales;         /* INT2: whether any scale is 2^15 or more, twice which is no f16: so all are halved, and y
                                doubled; of those below 2^-13 odd multiples of 2^-24 lose the half of that */
  enum gemm_type scale_type; /* of int4_many's weights: F16 or BF16 */
  const float *factors;      /* [n], of NVFP4's */
  void *sums; /* int2_many_sums_bytes of words INT2_MANY_NOTHING, aligned to 16 bytes; left as they are */
};

#endif
