/* How cuBLASLt is asked for a product: in which ways, in which order, and what is known of how long it takes. Pure. */
#pragma once

#include "../family.h"

/* What the library does to the sums. */
enum library_scale {
  LIBRARY_SCALE_NONE,
  LIBRARY_SCALE_ROWS,   /* times a scale a row of W and a scale a row of x */
  LIBRARY_SCALE_BLOCKS, /* times a scale a 128x128 block of W and a scale a 1x128 block of x */
};

/* What an algorithm is: its number and every attribute of its configuration. */
enum {
  ALGORITHM_ID,
  ALGORITHM_TILE,
  ALGORITHM_STAGES,
  ALGORITHM_SPLIT_K,
  ALGORITHM_REDUCTION,
  ALGORITHM_SWIZZLE,
  ALGORITHM_CUSTOM,
  ALGORITHM_INNER,
  ALGORITHM_CLUSTER,
  ALGORITHM_ATTRIBUTES
};

/* False for an algorithm that loses more of such a product's sums than may be. */
bool library_keeps_sums(enum gemm_format format, const int32_t attributes[ALGORITHM_ATTRIBUTES]);

/* How it is asked, then the algorithm's attributes. */
extern const struct variant_family library_family;
struct variant variant_of_library(int way, const int32_t attributes[ALGORITHM_ATTRIBUTES]);

/* Each way has algorithms of its own. */
enum { LIBRARY_WAYS = 3 };
struct library_way {
  enum library_scale scale;
  struct kernel_sums leaves; /* its type: of what the library computes */
};
/* False for a way that the problem has not. */
bool library_way(const struct kernel_problem *problem, int way, struct library_way *out);
/* The first way that asks for the same as this one. */
int library_way_first(const struct kernel_problem *problem, int way);
/* In what order the ways are tried. */
void library_order(const struct kernel_problem *problem, int ways[LIBRARY_WAYS]);

/* Microseconds of y in bf16 by FP8 with row scales, where that is what the library is asked for: of tiles of 128 by 128
 * in waves. */
bool library_has_model(const struct kernel_problem *problem);
double library_us(const struct kernel_problem *problem);

/* As in struct kernel_family: which algorithm is left open. */
bool library_predict(const struct kernel_problem *problem, struct variant *out, double *us);
struct kernel_sums library_leaves(const struct kernel_problem *problem, const struct variant *variant);
