/* What is added to sums of INT4 and INT4A8 weights whose zero points are f16, as int4_zeros/kernel.cuh is launched with
 * it. Pointers are device memory. */
#pragma once

#include "../../../../../proto/gemm.h"

#include <stdbool.h>
#include <stdint.h>

struct int4_zeros_product {
  int64_t m, n, k;
  int64_t groups, group; /* of a row of W, and elements of one */
  const void *x;         /* rows of x_stride bytes, k used: f32, f16, bf16, or INT8 with x_scale */
  enum gemm_type x_type;
  uint64_t x_stride;
  const float *x_scale;  /* [m], INT8 */
  const uint32_t *rests; /* [groups][rests_stride]: a scale, and above it what is left of the zero point, f16 */
  int64_t rests_stride;
  bool bf16_scales;
  float *x_sums;     /* [m][groups]: room for them */
  const float *sums; /* [m][n], without bias */
  const void *bias;  /* [n], or NULL */
  enum gemm_type bias_type;
  void *y;
  enum gemm_type y_type;
  uint64_t y_stride; /* bytes */
};
