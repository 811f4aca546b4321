/* What gather.h's launchers are given. Pointers are device memory, aligned to 256 bytes unless said otherwise. */
#pragma once

#include "route.h"

/* What x becomes. */
enum gather_to {
  GATHER_AS_IT_IS,
  GATHER_INT8, /* one scale a row */
  GATHER_E4M3,
  GATHER_E4M3_BLOCKS, /* a scale each 128 of K */
};

struct gather_pass {
  struct experts_route route;
  const int32_t *ids; /* [pairs], aligned to an element */
  int64_t pairs;
  int top, experts;
  int tile_rows;

  const void *x; /* [rows, k], or a row each pair: any alignment to an element */
  enum gemm_type x_type;
  bool x_pairs;
  int64_t x_stride;    /* bytes */
  int64_t k, k_padded; /* elements; those behind k become zeros */
  enum gather_to to;
  void *out;     /* [pairs, k_padded] */
  float *scales; /* of codes: [pairs]; of blocks [k / 128, scale_stride] */
  int64_t scale_stride;

  void *y; /* rows of skipped pairs become zeros; NULL: nothing does */
  int64_t y_stride, y_bytes;
  uint32_t *skipped; /* the number of pairs that are is added; NULL: nobody counts */
  bool dependent;    /* may be started before the kernel ahead has ended */
};
