/* Products as the plain kernels are launched with them. Pointers are device memory, aligned to 256 bytes unless said
 * otherwise. */
#pragma once

#include "../../../../proto/gemm.h"
#include "config.h"

#include <stdint.h>

/* Sums of formats whose codes are not packed: s32 for INT8, else f32. */
struct plain_product {
  enum gemm_format format;
  int64_t m, n, k; /* of sums, which are [m, n]; rows of x and w are k elements apart and long */
  const void *x, *w;
  const float *x_scale, *w_scale; /* BLOCK weights: [k / 128, x_scale_stride], [n / 128, w_scale_stride]; else NULL */
  int64_t x_scale_stride, w_scale_stride;
  void *sums;
  struct plain_cut cut;
  void *parts; /* [slices, m, n], of sums' type; more than one slice */
};

/* y = x * W^T + bias with packed codes, as the canonical form has them; x is INT8 where its format quantizes it. */
struct packed_product {
  enum gemm_format format;
  const void *x; /* [m, x_stride], k used; INT8: zeros behind k up to a multiple of 128 */
  enum gemm_type x_type;
  int64_t x_stride;     /* elements; INT8: a multiple of 128, others: k */
  const float *x_scale; /* [m], or NULL: 1 */
  const void *codes;    /* [n, row_bytes] */
  uint64_t row_bytes;
  const void *scales;
  enum gemm_type scale_type;
  const void *zeros;    /* beside the scales, or NULL */
  bool zeros_f16;       /* else they are u8 */
  int64_t scale_stride; /* scales of one row of W */
  int64_t group;        /* elements of it that share one */
  const float *factors; /* [n], by which they are multiplied, or NULL */
  const void *bias;
  enum gemm_type bias_type;
  void *y;
  enum gemm_type y_type;
  uint64_t y_stride; /* bytes */
  int64_t m, n, k;
  struct plain_cut cut;
  float *parts; /* as above */
};
