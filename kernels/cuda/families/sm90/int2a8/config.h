/* Products of rows of INT8 with INT2A8 weights in LAYOUT_TILES2A8, on the warpgroup's matrix instruction of integers,
 * for Hopper: blocks share K in clusters (split_k) and keep their part of x in shared memory. Sums are added in one
 * order, so the bits do not depend on timing. */
#pragma once

#include "../../../../../proto/gemm.h"
#include "../../../linkage.h"
#include "../int2/cut.h"

#include <stdbool.h>
#include <stdint.h>

C_LINKAGE_BEGIN

enum {
  INT2A8_STAGES_MOST = 12,
  INT2A8_GROUP_BYTES = 8 * GEMM_GROUP + 64, /* of x in shared memory, eight columns */
  INT2A8_GROUPS = 4,                        /* warpgroups of a block: each works on 64 rows of W at a time */
};

struct int2a8_config {
  int eights;  /* of columns: 1, 2, 4 */
  int split_k; /* blocks of a cluster, each with its share of K: 1, 2, 4, 8 */
  int blocks;  /* of 64 rows of W for a cluster */
};

struct int2a8_plan {
  struct int2_cut cut; /* among warpgroups */
  int stages;          /* of the rings: tiles under way, a warpgroup */
  int x_bytes, shared_bytes;
};

/* A configuration and its plan, for products of at most 8 * eights rows. */
struct int2a8_way {
  struct int2a8_config config;
  struct int2a8_plan plan;
};

enum { INT2A8_WAYS = 3 /* of 1, 2 and 4 eights */, INT2A8_K_MOST = 32768 };

/* False where the configuration does not fit the product or a multiprocessor. Pure. */
bool int2a8_plan_for(const struct int2a8_config *config, int64_t n, int64_t k, struct int2a8_plan *out);
/* Microseconds by the cost model. Pure. */
double int2a8_us(const struct int2a8_config *config, const struct int2a8_plan *plan, int sms);
/* What the cost model holds for the fastest on a device of `sms` multiprocessors. False where nothing fits, as with K
 * beyond INT2A8_K_MOST. Pure. */
bool int2a8_ways_find(int64_t n, int64_t k, int sms, struct int2a8_way out[INT2A8_WAYS]);
/* All that fit, by the cost model, the fastest first. Returns how many, at most `most`. Pure. */
enum { INT2A8_CONFIGS = 128 /* at most */ };
int int2a8_candidates(int eights, int64_t n, int64_t k, int sms, struct int2a8_config *out, int most);
/* The narrowest of the ways that holds m rows, else the widest. Pure. */
const struct int2a8_way *int2a8_way_for(const struct int2a8_way ways[INT2A8_WAYS], int64_t m);

C_LINKAGE_END
