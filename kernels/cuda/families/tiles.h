/* A product with a weight of less than a byte an element in tiles, as the kernels that read tiles are launched with
 * it. Pointers are device memory. */
#pragma once

#include "../experts/route.h"

struct tiles_product {
  enum gemm_format format;
  int64_t m, n, k; /* rows of x and of y, over experts pairs; of an expert's W: rows, and K in whole tiles */
  int experts;
  const void *tiles;    /* the weight, of all experts */
  bool large_scales;    /* int4/scales.h, int2/scales.h: some that kernels must not multiply codes by as they are */
  bool bf16_scales;     /* else f16, or e2m1's */
  const float *factors; /* [n], NVFP4's; or NULL */
  const void *x; /* rows of whole tiles of K, zeros behind K; aligned to 16 bytes; over experts [pairs] by route */
  enum gemm_type x_type; /* INT8 where the format quantizes it */
  int64_t x_stride;      /* bytes, a multiple of 16 */
  const float *x_scale;  /* [m], INT8; or NULL */
  const void *bias;      /* [n], or NULL; over experts [experts, n], factors likewise */
  enum gemm_type bias_type;
  void *y; /* [m, n], aligned to an element; may be mapped host memory but over experts */
  enum gemm_type y_type;
  uint64_t y_stride; /* bytes */
  bool y_sorted;     /* over experts: rows of y by route; else each where its pair is */
  void *sums;        /* the kernels' own, between blocks: aligned to 16 bytes; see their launchers */
  struct experts_route route;
};
