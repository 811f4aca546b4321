/* Where the tensors of one product lie in a slot's staging memory. Pure. Sizes are those of the widest types, so that
 * they depend on the weight and the number of rows alone. */
#pragma once

#include "../weight/layout.h"

/* Offsets in bytes, each a multiple of 256. */
struct staging {
  uint64_t x;         /* rows as they come, dense; INT2: of layout.k elements */
  uint64_t ordered;   /* the same in the weight's order, where x is not quantized */
  uint64_t codes;     /* quantized rows as the product reads them, layout.x_row_bytes each */
  uint64_t scales;    /* f32, one a row, or for BLOCK [blocks of K, rows] */
  uint64_t scales_in; /* BLOCK: scales as they come, [rows, blocks of K] */
  uint64_t sums;      /* rows of layout.n elements of at most 4 bytes; INT2, INT2A8: none */
  uint64_t y;         /* rows of weight.n elements, where y cannot be written in place */
  uint64_t bias;
  uint64_t y_rows; /* pointers to rows of y that lie apart; none where x is not quantized */
  uint64_t bytes;  /* of all */
};

/* Rows that the product is asked for when there are `rows`: cuBLASLt's block scales come in fours. */
int64_t staging_pad(const struct gemm_weight *weight, int64_t rows);
struct staging staging_place(const struct gemm_weight *weight, const struct layout *layout, int64_t rows);
/* The most rows that `bytes` hold, at most ROWS_MOST; 0 where not one fits. */
int64_t staging_rows(const struct gemm_weight *weight, const struct layout *layout, uint64_t bytes);

/* Rows of each go where `rows` are computed in as few goes of up to `most` as there must be: about equal, so that none
 * is left with a few. */
int64_t staging_go(int64_t rows, int64_t most);

enum { ROWS_MOST = 16384 };
