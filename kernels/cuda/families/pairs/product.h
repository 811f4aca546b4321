/* A product over experts as pairs/kernel.cuh is launched with it. Pointers are device memory. */
#pragma once

#include "../../experts/route.h"

/* y of all pairs, each by itself: any format. Rows of x are sorted by expert. */
struct pairs_product {
  enum gemm_format format;
  enum gemm_scale scale;
  int64_t pairs, n, k;                    /* k: elements of a row that are read */
  const void *w;                          /* [experts * n], rows of w_stride bytes */
  const void *w_scale;                    /* f32 a row, BLOCK [experts * ceil(n / 128), w_scale_stride] */
  enum gemm_type w_scale_type;            /* of packed weights, with w_scale_stride of them a row */
  const void *w_zeros;                    /* beside them, or NULL */
  bool w_zeros_f16;                       /* else they are u8 */
  int64_t group;                          /* elements of a row that share one; 0: the weight is not packed */
  const float *w_factors;                 /* [experts * n], of rows of W, or NULL */
  const void *x;                          /* [pairs], rows of x_stride bytes */
  const float *x_scale;                   /* [pairs], BLOCK [k / 128, x_scale_stride]; NULL where x is no codes */
  enum gemm_type x_type;                  /* as x is read: INT8 and E4M3 of codes */
  int64_t w_stride, x_stride;             /* bytes */
  int64_t w_scale_stride, x_scale_stride; /* elements */
  const void *bias;                       /* [experts, n], or NULL */
  enum gemm_type bias_type;
  void *y;
  enum gemm_type y_type;
  uint64_t y_stride; /* bytes */
  bool y_sorted;
  const int32_t *ids; /* [pairs] */
  struct experts_route route;
};
