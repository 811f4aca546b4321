/* Products of few rows of x with INT2 weights in LAYOUT_TILES2, on a warp's sparse matrix instruction, for Hopper:
 * blocks share K in clusters (split_k). Each keeps its part of x in shared memory and takes the codes through it to
 * registers. Sums are added in one order, so the bits do not depend on timing. */
#pragma once

#include "../../../../../proto/gemm.h"
#include "../../../linkage.h"
#include "../int2/cut.h"
#include "../int2/layout.h"

#include <stdbool.h>
#include <stdint.h>

C_LINKAGE_BEGIN

enum {
  INT2_FEW_COLUMNS_MOST = 8,
  INT2_FEW_ROWS = INT2_HALF_ROWS, /* of W, a multiple of which clusters have */
  INT2_FEW_WARPS = 8,             /* of a block that multiply: each works on 64 rows of W at a time */
  INT2_FEW_STAGES_LEAST = 3,
  INT2_FEW_STAGES_MOST = 5,     /* with more, x and instructions are longer on their way; with fewer columns one less */
  INT2_FEW_ALIGN = 128,         /* of where tiles are copied to: a line of shared memory */
  INT2_FEW_STAGE_BYTES = 17536, /* a tile of each warp, and what says that they have come and gone */
  INT2_FEW_X_BYTES = 512,       /* of a group of K and a column, as the instruction takes it */
};

struct int2_few_config {
  int columns; /* that there is room for: 1, 2, 4, 6, 8; see int2_few_columns */
  int split_k; /* blocks of a cluster, each with its share of K: 1, 2, 4, 8 */
  int rows;    /* of W for a cluster: a multiple of INT2_FEW_ROWS */
};

struct int2_few_plan {
  struct int2_cut cut;                   /* among warps */
  int columns;                           /* the configuration's */
  int x_bytes, ring_bytes, shared_bytes; /* x: with its multipliers; ring: whole stages */
};

/* A configuration and its plan, for products of at most config.columns columns. */
struct int2_few_way {
  struct int2_few_config config;
  struct int2_few_plan plan;
};

enum { INT2_FEW_WAYS = 5 /* 1, 2, 4, 6, 8 columns */, INT2_FEW_K_MOST = 32768 };

/* False where the configuration does not fit the product or a multiprocessor. Pure. */
bool int2_few_plan_for(const struct int2_few_config *config, int64_t n, int64_t k, struct int2_few_plan *out);
/* Microseconds by the cost model. Pure. */
double int2_few_us(const struct int2_few_config *config, const struct int2_few_plan *plan, int sms);
/* What the cost model holds for the fastest on a device of `sms` multiprocessors. False where nothing fits, as with K
 * beyond INT2_FEW_K_MOST. Pure. */
bool int2_few_ways_find(int64_t n, int64_t k, int sms, struct int2_few_way out[INT2_FEW_WAYS]);
/* All that fit, by the cost model, the fastest first. Returns how many, at most `most`. Pure. */
enum { INT2_FEW_CONFIGS = 256 /* at most */ };
int int2_few_candidates(int columns, int64_t n, int64_t k, int sms, struct int2_few_config *out, int most);
/* Whether a row of x takes two columns: f32 x, and any where y is f32. Pure. */
bool int2_few_splits(enum gemm_type x_type, enum gemm_type y_type);
/* Columns that the instruction needs for so many rows of x, at most INT2_FEW_COLUMNS_MOST at a time. Pure. */
int int2_few_columns(enum gemm_type x_type, enum gemm_type y_type, int64_t m);
/* Rows of x that a product takes at a time: 8, or 4 of two columns each. Pure. */
int64_t int2_few_rows_most(enum gemm_type x_type, enum gemm_type y_type);

C_LINKAGE_END
