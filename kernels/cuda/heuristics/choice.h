/* Which way a product is computed. Knows what cuBLASLt may be asked for, keeps its answers, starts nothing.
 *
 * Every product has a way: where neither the library nor a tensor-core kernel of ours has one on this device, or none
 * that meets the numerics contract, our plain kernel computes the sums. */
#ifndef KERNELS_CUDA_HEURISTICS_CHOICE_H
#define KERNELS_CUDA_HEURISTICS_CHOICE_H

#include "../families/cublaslt/library.h"
#include "../families/few/config.h"
#include "../families/sm90/fp8_many/config.h"
#include "../families/sm90/many/config.h"

#include <stdbool.h>

enum choice_way {
  CHOICE_PLAIN,
  CHOICE_LIBRARY,
  CHOICE_HOPPER,
  CHOICE_FEW,
  CHOICE_MANY,
  CHOICE_FP8_MANY,
  CHOICE_TILE,
};

struct choice {
  enum choice_way way;
  bool scaled; /* what is computed carries the scales already */
  bool biased; /* and the bias */
  enum library_scale scale;
  enum gemm_type d_type;           /* what is computed */
  cublasLtMatmulAlgo_t algorithm;  /* LIBRARY */
  struct hopper_config hopper;     /* HOPPER, which makes y itself */
  struct few_config few;           /* FEW, likewise */
  struct many_config many;         /* MANY, likewise */
  struct fp8_many_config fp8_many; /* FP8_MANY, likewise */
  const struct variant *tile;      /* TILE, which does so too; the job's */
};

/* What a choice depends on beside the request. */
struct choice_device {
  int capability; /* 10 * major + minor */
  int multiprocessors;
};

/* N and K as padded. */
struct choice_request {
  const struct gemm_weight *weight;
  int64_t n, k, m;
  enum gemm_type y_type, bias_type;
  bool in_row; /* launched behind another product, so that W comes in while that one ends */
};

struct choice_table;

struct choice_table *choice_open(const struct choice_device *device); /* NULL: no memory */
void choice_close(struct choice_table *table);

/* The choice for all M of m's bucket, or for `exact` M alone where an algorithm of the bucket does not take it.
 * `operands` lends pointers for the library to look at. The first answer for a key is kept. */
struct choice choice_find(struct choice_table *table, struct library *library, const struct choice_request *request,
                          const struct library_product *operands, bool exact);
/* How many ways the library may be asked, each with algorithms of its own; fills *choice but for the algorithm. False
 * for a way that the request has not. */
enum { CHOICE_LIBRARY_WAYS = 3 };
bool choice_library_way(const struct choice_request *request, int way, struct choice *choice);
/* Whether our kernel for Hopper can be asked, and for what. */
bool choice_hopper(const struct choice_table *table, const struct choice_request *request,
                   struct hopper_product *product, int *multiprocessors);
/* The same for our kernel for few rows of x. */
bool choice_few(const struct choice_table *table, const struct choice_request *request, struct hopper_product *product,
                int *multiprocessors);
/* The same for our kernel for many rows of x; *busy as many_configure has it. */
bool choice_many(const struct choice_table *table, const struct choice_request *request, struct many_config *config,
                 double *busy);
/* The same for that for FP8, but for the configuration. */
bool choice_fp8_many(const struct choice_table *table, const struct choice_request *request,
                     struct hopper_product *product, int *multiprocessors);
/* The plain kernel. */
struct choice choice_plain(const struct choice_request *request);
/* True if nothing is left to do to what is computed. */
bool choice_final(const struct choice *choice, const struct choice_request *request);

#endif
