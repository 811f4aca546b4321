/* Products of few rows of x with INT4 and MXFP4 weights in LAYOUT_TILES4, on a warp's matrix instruction, for Hopper:
 * blocks share K in clusters (split_k). Each keeps its part of x in shared memory and takes the codes through it to
 * registers. Sums are added in one order, so the bits do not depend on timing. */
#pragma once

#include "../../../../../proto/gemm.h"
#include "../../../linkage.h"
#include "../int4/form.h"

#include <stdbool.h>
#include <stdint.h>

C_LINKAGE_BEGIN

enum {
  INT4_FEW_COLUMNS_MOST = 16,
  INT4_FEW_ROWS = INT4_BLOCK_ROWS, /* of W, that a cluster has at least */
  INT4_FEW_ROWS_STEP = 4,
  INT4_FEW_WARPS = 8,    /* of a block that multiply: each works on 32 rows of W at a time */
  INT4_FEW_TOGETHER = 4, /* tiles of a stage, which follow each other along K */
  INT4_FEW_STAGES_LEAST = 2,
  INT4_FEW_STAGES_MOST = 6,
  INT4_FEW_SPLIT_MOST = 8,
  INT4_FEW_BLOCKS_MOST = 32,            /* of INT4_FEW_ROWS rows, of a cluster */
  INT4_FEW_SHARING_MOST = 512,          /* blocks of the grid, where clusters share blocks of rows */
  INT4_FEW_PITCH = INT4_BLOCK_ROWS + 4, /* of sums */
  INT4_FEW_ALIGN = 128,                 /* of where tiles are copied to: a line of shared memory */
  INT4_FEW_X_PIECES = 16,               /* at most, that x comes in */
  INT4_FEW_X_PAD = 16,                  /* bytes between rows of x, so that eight of them lie in different banks */
};

/* What words are that blocks leave sums for each other in. */
#define INT4_FEW_NOTHING 0xffffffffu

struct int4_few_config {
  int columns; /* that there is room for: a power of two */
  int split_k; /* blocks of a cluster, each with its share of K: 1, 2, 4, 8 */
  int rows;    /* of W for a cluster: a multiple of INT4_FEW_ROWS_STEP */
};

struct int4_few_plan {
  uint32_t tiles, stages;        /* of a block of INT4_FEW_ROWS rows; stages of INT4_FEW_TOGETHER tiles */
  uint32_t row_blocks, clusters; /* of all rows */
  uint32_t rows, split_log2;     /* of a cluster */
  int columns;                   /* the configuration's */
  uint32_t piece_log2;           /* of the stages in a piece of x */
  uint32_t ahead_bytes;          /* of W behind the ring, into the L2 at the start */
  int x_bytes, ring_bytes, shared_bytes;
};

/* A configuration and its plan, for products of at most config.columns columns; 0: there is none. */
struct int4_few_way {
  struct int4_few_config config;
  struct int4_few_plan plan;
};

enum { INT4_FEW_WAYS = 5 /* 1, 2, 4, 8, 16 columns */, INT4_FEW_K_MOST = 65536 };

/* Of a stage of the ring: half a tile of each warp, and barriers. Pure. */
int int4_few_stage_bytes(const struct int4_form *form);
/* False where the configuration does not fit the product or a multiprocessor. Pure. */
bool int4_few_plan_for(const struct int4_few_config *config, const struct int4_form *form, int64_t n, int64_t k,
                       struct int4_few_plan *out);
/* Microseconds by the cost model. Pure. */
double int4_few_us(const struct int4_few_config *config, const struct int4_form *form, const struct int4_few_plan *plan,
                   int sms);
/* All that fit, by the cost model, the fastest first. Returns how many, at most `most`. Pure. */
enum { INT4_FEW_CONFIGS = 4 * (INT4_FEW_BLOCKS_MOST + 1) /* at most */ };
int int4_few_candidates(int columns, const struct int4_form *form, int64_t n, int64_t k, int sms,
                        struct int4_few_config *out, int most);
/* What the cost model holds for the fastest on a device of `sms` multiprocessors. False where nothing fits 8 columns,
 * as with K beyond INT4_FEW_K_MOST. Pure. */
bool int4_few_ways_find(const struct int4_form *form, int64_t n, int64_t k, int sms,
                        struct int4_few_way out[INT4_FEW_WAYS]);
/* Of memory that blocks leave sums for each other in. */
enum { INT4_FEW_SUMS_BYTES = INT4_FEW_SHARING_MOST * INT4_FEW_COLUMNS_MOST * INT4_FEW_ROWS * 4 };
/* Columns that a row of x takes: 2 of f32. Pure. */
int int4_few_columns_a_row(enum gemm_type x_type);
/* Columns of the narrowest way that holds so many rows of x, or of the widest that there is. Pure. */
int int4_few_columns(const struct int4_few_way ways[INT4_FEW_WAYS], enum gemm_type x_type, int64_t m);

C_LINKAGE_END
