/* A product of rows of 8-bit codes, or over experts also of 16-bit numbers, as the kernels for it are launched with it.
 * Over experts rows of x are those of pairs, [m] by route. */
#pragma once

#include "../../../experts/route.h"

struct hopper_product {
  enum gemm_format format;
  enum gemm_scale scale;      /* BLOCK: FP8 in blocks of 128 of K, k a multiple of 128; else one a row */
  int64_t m, n, k;            /* of y, x and W as they are used; k: bytes of a row that are read, a multiple of 16 */
  int experts;                /* with n rows of W each */
  const void *w, *x;          /* rows of codes, aligned to 16 bytes */
  int64_t w_stride, x_stride; /* bytes, multiples of 16 */
  const float *w_scale;       /* [n]; BLOCK: [n / 128, w_scale_stride]; NULL: 1 */
  const float *x_scale;       /* [m]; BLOCK: [k / 128, x_scale_stride], aligned to 16 bytes; NULL: 1 */
  int64_t w_scale_stride, x_scale_stride; /* elements; x_scale_stride a multiple of 4 that is not below m */
  const void *bias;                       /* [n], or NULL */
  enum gemm_type bias_type;
  void *y;               /* [m, n], aligned to an element; may be mapped host memory, but over experts */
  enum gemm_type y_type; /* S32: INT8's sums as they are */
  uint64_t y_stride;     /* bytes */
  void *const *y_rows;   /* on the device: where each of the m rows of y begins, in place of y; NULL: y_stride apart */
  bool y_sorted;         /* over experts: rows of y by route; else each where its pair is */
  struct experts_route route;
};
