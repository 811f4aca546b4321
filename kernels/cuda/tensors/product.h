/* Products of two tensors of 16-bit numbers as their kernels are called: x and W each by rows of K or by columns, K cut
 * up into slices whose sums, in f32, a pass adds up. Plain data; read by C and CUDA. */
#pragma once

#include "../../../proto/gemm.h"

#include <stdbool.h>
#include <stdint.h>

enum {
  TENSORS_SLICES_MOST = 256,
  TENSORS_ROW_PAD = 128,    /* partial sums have so many rows, or a multiple of it */
  TENSORS_COLUMN_PAD = 256, /* and so many columns */
};

/* Memory that the device can address; x and W aligned to an element at least. */
struct tensors_product {
  enum gemm_type type; /* of x and W: F16 or BF16 */
  int64_t m, n, k;
  const void *x, *w;
  uint64_t x_stride, w_stride; /* bytes from one row to the next of [m, k] and [n, k]; turned: of [k, m] and [k, n] */
  bool x_turned, w_turned;
  bool dependent;  /* may start before the kernel ahead has ended: Hopper's kernel alone */
  int slices;      /* 1..TENSORS_SLICES_MOST; a kernel may have fewer where K is short */
  float *partials; /* [slices, m and n padded as above] */
};

/* What becomes of the partial sums: `carry` where more of K is to come, else y. */
struct tensors_sums {
  const float *partials;
  int64_t pitch, slice; /* elements from row to row, and from slice to slice: the launcher's */
  int slices;
  int64_t m, n;
  float *carry; /* [m, n]: sums of what of K came before; NULL: K comes in one piece */
  bool first, last;
  bool dependent; /* may start before the kernel ahead has ended: Hopper's and newer */
  void *y;
  uint64_t y_stride; /* bytes */
  enum gemm_type y_type;
  bool add;         /* to what y holds */
  const void *bias; /* [n] of bias_type; NULL: none */
  enum gemm_type bias_type;
};

static inline int64_t tensors_padded_rows(int64_t m) {
  return (m + TENSORS_ROW_PAD - 1) / TENSORS_ROW_PAD * TENSORS_ROW_PAD;
}
static inline int64_t tensors_padded_columns(int64_t n) {
  int64_t narrow = (n + 63) / 64 * 64;
  return narrow <= 128 ? narrow : (n + TENSORS_COLUMN_PAD - 1) / TENSORS_COLUMN_PAD * TENSORS_COLUMN_PAD;
}
/* Bytes of `slices` partial sums. */
static inline uint64_t tensors_partial_bytes(int64_t m, int64_t n, int slices) {
  return (uint64_t)tensors_padded_rows(m) * (uint64_t)tensors_padded_columns(n) * (uint64_t)slices * sizeof(float);
}
