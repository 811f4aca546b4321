/* A product over experts of rows of 8-bit codes or 16-bit numbers, as the kernel for it is launched with it. */
#ifndef KERNELS_CUDA_FAMILIES_SM90_GROUPED_PRODUCT_H
#define KERNELS_CUDA_FAMILIES_SM90_GROUPED_PRODUCT_H

#include "../../../experts/route.h"

struct grouped_product {
  enum gemm_format format; /* INT8 or FP8 */
  enum gemm_scale scale;   /* BLOCK: FP8 in blocks of 128 of K, k a multiple of 128; else one a row of W */
  int64_t pairs, n, k;     /* rows of y, of an expert's W, and bytes of a row, a multiple of 16 */
  int experts;
  const void *w, *x;                      /* rows of codes, aligned to 16 bytes: [experts * n], [pairs] by route */
  int64_t w_stride, x_stride;             /* bytes, multiples of 16 */
  int64_t x_rows;                         /* that may be read: better 64 or more behind the last pair */
  const float *w_scale;                   /* [experts * n]; BLOCK: [experts * ceil(n / 128), w_scale_stride]; NULL: 1 */
  const float *x_scale;                   /* [pairs] by route; BLOCK: [k / 128, x_scale_stride]; NULL: 1 */
  int64_t w_scale_stride, x_scale_stride; /* elements */
  const void *bias;                       /* [experts, n], or NULL */
  enum gemm_type bias_type;
  void *y; /* [pairs, n], aligned to an element */
  enum gemm_type y_type;
  uint64_t y_stride; /* bytes */
  bool y_sorted;     /* rows of y by route; else each where its pair is */
  struct experts_route route;
};

#endif
