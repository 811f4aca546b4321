/* Products of two tensors, neither of which is a stored weight: how they lie, and what becomes of y. Pure. */
#pragma once

#include "gemm.h"

enum { TENSORS_BATCH_MOST = 65535 };

/* Zeros: one product, all row-major, y is written. */
struct tensors_form {
  bool x_turned, w_turned; /* x is [K, M], W is [K, N] */
  bool add;                /* the product is added to what y holds, in f32 before it is rounded */
  int64_t batch;           /* so many products, 1..TENSORS_BATCH_MOST, without a bias where there are several; 0: one */
  /* Bytes from the tensor of one of them to that of the next; 0: one follows the other. Products may share x or W, the
   * y of none overlaps that of another. */
  uint64_t x_step, w_step, y_step;
};

/* gemm_tensors_check for a form, whose batch and steps are made explicit. The extent is that of all the batch. An error
 * names a step as the stride of its tensor. */
MUST_CHECK enum status tensors_check(const struct gemm_product *product, struct tensors_form *form, uint64_t w_offset,
                                     uint64_t *w_stride, uint64_t tensors_begin, uint64_t arena_bytes,
                                     struct gemm_extent *out, struct error *error);
