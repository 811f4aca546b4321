/* Products of few rows of x with INT2 weights in LAYOUT_TILES2, on a warp's matrix instruction, for Hopper: blocks
 * share K in clusters (split_k). Each keeps its part of x in shared memory and takes the codes through it to registers.
 * Sums are added in one order, so the bits do not depend on timing. */
#ifndef KERNELS_CUDA_INT2_FEW_CONFIG_H
#define KERNELS_CUDA_INT2_FEW_CONFIG_H

#include "../../proto/gemm.h"
#include "int2_cut.h"
#include "int2_layout.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  INT2_FEW_COLUMNS_MOST = 16,
  INT2_FEW_COLUMNS_LEAST = 2,
  INT2_FEW_COLUMNS_HALVES = 8,    /* at most, for half blocks of rows: with 16 they are no faster */
  INT2_FEW_ROWS = INT2_HALF_ROWS, /* a warp's at a time */
  INT2_FEW_PAIRS = 8,             /* of warps in a block: each works on 64 rows of W at a time */
  INT2_FEW_STAGES_LEAST = 3,
  INT2_FEW_STAGES_MOST = 6,     /* with more, x and instructions are longer on their way */
  INT2_FEW_ALIGN = 128,         /* of where tiles are copied to: a line of shared memory */
  INT2_FEW_STAGE_BYTES = 17536, /* a tile of each pair, and what says that they have come and gone */
};

struct int2_few_config {
  int columns; /* that there is room for: 2, 4, 8, 16; a row of f32 x takes two */
  int split_k; /* blocks of a cluster, each with its share of K: 1, 2, 4, 8 */
  int rows;    /* of W for a cluster: a multiple of INT2_FEW_ROWS */
};

struct int2_few_plan {
  struct int2_cut cut;                   /* among pairs of warps */
  int columns;                           /* the configuration's */
  int x_bytes, ring_bytes, shared_bytes; /* ring: whole stages */
};

/* A configuration and its plan, for products of at most config.columns columns. */
struct int2_few_way {
  struct int2_few_config config;
  struct int2_few_plan plan;
  double us; /* with so many, by the cost model */
};

enum { INT2_FEW_WAYS = 4 /* 2, 4, 8, 16 columns */, INT2_FEW_K_MOST = 32768 };

/* False where the configuration does not fit the product or a multiprocessor. Pure. */
bool int2_few_plan_for(const struct int2_few_config *config, int64_t n, int64_t k, struct int2_few_plan *out);
/* What the cost model holds for the fastest on a device of `sms` multiprocessors. False where nothing fits, as with K
 * beyond INT2_FEW_K_MOST. Pure. */
bool int2_few_ways_find(int64_t n, int64_t k, int sms, struct int2_few_way out[INT2_FEW_WAYS]);
/* All that fit, by the cost model, the fastest first. Returns how many, at most `most`. Pure. */
enum { INT2_FEW_CONFIGS = 256 /* at most */ };
int int2_few_candidates(int columns, int64_t n, int64_t k, int sms, struct int2_few_config *out, int most);
/* Microseconds for m rows of f16 or bf16, more than INT2_FEW_COLUMNS_HALVES, by the widest of the ways. Pure. */
double int2_few_us(const struct int2_few_way ways[INT2_FEW_WAYS], int64_t m);
/* Columns that the instruction needs for so many rows of x, at most INT2_FEW_COLUMNS_MOST at a time. Pure. */
int int2_few_columns(enum gemm_type x_type, int64_t m);
/* Rows of x of this type that a product takes at a time. Pure. */
int64_t int2_few_rows_most(enum gemm_type x_type);

#ifdef __cplusplus
}
#endif
#endif
