#include "../../launch/launch_kernel.h"
#include "../call.h"
#include "../table.h"
#include "attributes.h"
#include "list.h"

#include <stdlib.h>
#include <string.h>

/* The library looks at the operands' alignment alone. */
static struct library_product product_of(const struct library *library, const struct kernel_problem *problem,
                                         const struct library_way *way) {
  void *anywhere = (void *)(uintptr_t)library->anywhere;
  return (struct library_product){
      .format = problem->format,
      .n = problem->n_padded,
      .k = problem->k_padded,
      .m = problem->m,
      .w = anywhere,
      .x = anywhere,
      .w_scale = anywhere,
      .x_scale = anywhere,
      .scale = way->scale,
      .d_type = way->leaves.type,
      .d = anywhere,
      .bias_type = way->leaves.biased ? problem->bias_type : GEMM_TYPE_NONE,
      .bias = anywhere,
  };
}

static void algorithm_keep(const cublasLtMatmulAlgo_t *algorithm, struct variant *variant) {
  _Static_assert(sizeof *algorithm == sizeof variant->ready, "an algorithm is what launch finds ready");
  memcpy(variant->ready, algorithm, sizeof variant->ready);
}

/* Its first choice, in the first way that it has one for. */
static enum status complete(struct backend *backend, const struct kernel_problem *problem, struct variant *variant,
                            struct error *error) {
  int ways[LIBRARY_WAYS];
  library_order(problem, ways);
  for (int i = 0; i < LIBRARY_WAYS; i++) {
    struct library_way way;
    cublasLtMatmulAlgo_t algorithm;
    int32_t attributes[ALGORITHM_ATTRIBUTES];
    if (!library_way(problem, ways[i], &way))
      continue;
    struct library_product product = product_of(&backend->library, problem, &way);
    if (library_find(&backend->library, &product, &algorithm, error) != STATUS_OK)
      continue;
    attributes_get(&backend->library.functions, &algorithm, attributes);
    *variant = variant_of_library(library_way_first(problem, ways[i]), attributes);
    algorithm_keep(&algorithm, variant);
    return STATUS_OK;
  }
  return error_set(error, STATUS_UNSUPPORTED, "cuBLASLt has no algorithm for this product");
}

static int list(struct backend *backend, const struct kernel_problem *problem, bool all, struct variant *out, int count,
                int most) {
  enum { LISTED_MOST = 1024, FROM_EACH_WAY = 24 };
  int32_t(*listed)[ALGORITHM_ATTRIBUTES] = malloc(LISTED_MOST * sizeof *listed);
  for (int i = 0; i < LIBRARY_WAYS && listed; i++) {
    struct library_way way;
    if (!library_way(problem, i, &way))
      continue;
    struct library_product product = product_of(&backend->catalog, problem, &way);
    int room = most - count < LISTED_MOST ? most - count : LISTED_MOST;
    if (!all && room > FROM_EACH_WAY)
      room = FROM_EACH_WAY;
    int found = library_list(&backend->catalog, &product, all, listed, room);
    for (int j = 0; j < found; j++)
      out[count++] = variant_of_library(i, listed[j]);
  }
  free(listed);
  return count;
}

/* Slices of K and the order of blocks, for an algorithm of the library that is good already. */
static int neighbours(struct backend *backend, const struct kernel_problem *problem, const struct variant *base,
                      bool all, struct variant *out, int most) {
  enum { LONG_K = 16384, FEW = 7 };
  static const int slices[] = {2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256};
  size_t counts = problem->k >= LONG_K ? sizeof slices / sizeof *slices : FEW;
  int count = 0;
  for (size_t i = 0; i < counts && count < most; i++) {
    out[count] = *base;
    out[count].values[1 + ALGORITHM_SPLIT_K] = slices[i];
    out[count++].values[1 + ALGORITHM_REDUCTION] = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  }
  if (count < most) {
    out[count] = *base;
    out[count++].values[1 + ALGORITHM_SWIZZLE] = !base->values[1 + ALGORITHM_SWIZZLE];
  }
  return count;
}

static enum status check(struct backend *backend, const struct kernel_problem *problem, struct variant *variant,
                         struct variant *nearest, struct error *error) {
  struct library_way way;
  cublasLtMatmulAlgo_t algorithm;
  if (!library_way(problem, variant->values[0], &way))
    return error_set(error, STATUS_UNSUPPORTED, "cuBLASLt is not asked for this product in way %d",
                     (int)variant->values[0]);
  struct library_product product = product_of(&backend->library, problem, &way);
  enum status status = library_algorithm(&backend->library, &product, variant->values + 1, &algorithm, error);
  if (status == STATUS_OK)
    algorithm_keep(&algorithm, variant);
  return status;
}

static void needs(struct backend *backend, const struct kernel_problem *problem, const struct variant *variant,
                  struct backend_needs *out) {
  struct library_way way;
  if (!library_way(problem, variant->values[0], &way))
    return;
  struct library_product product = product_of(&backend->library, problem, &way);
  out->workspace_bytes = library_workspace(&backend->library, &product, variant->values + 1);
}

/* The library may refuse an algorithm that it gave for more rows. */
static enum status launch(struct backend *backend, const struct kernel_call *call, const struct variant *variant,
                          struct error *error) {
  struct kernel_problem problem = kernel_call_problem(backend, call);
  struct library_way way;
  cublasLtMatmulAlgo_t algorithm;
  if (!library_way(&problem, variant->values[0], &way))
    return error_set(error, STATUS_UNSUPPORTED, "no kernel for this product");
  struct library_product product = product_of(&backend->library, &problem, &way);
  product.w = call->weight->codes;
  product.x = call->x;
  product.w_scale = (const float *)(const void *)call->weight->scales;
  product.x_scale = call->x_scale;
  product.d = call->sums;
  product.bias = call->bias;
  memcpy(&algorithm, variant->ready, sizeof algorithm);
  launch_flush(call->stream);
  return library_run(&backend->library, &product, &algorithm, call->workspace, call->stream, error);
}

const struct kernel_family library_kernels = {
    .variants = &library_family,
    .predict = library_predict,
    .complete = complete,
    .candidates = list,
    .neighbours = neighbours,
    .check = check,
    .needs = needs,
    .launch = launch,
    .leaves = library_leaves,
};
