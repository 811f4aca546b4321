#include "list.h"

#include "attributes.h"

#include <string.h>

enum {
  HEURISTIC_MOST = 64,
  IDS_MOST = 128,
  VALUES_MOST = 128, /* tiles or stages of one algorithm */
  CLUSTERS_MOST = 64,
};

static cublasStatus_t init(struct library *library, const struct objects *objects, int id, cublasLtMatmulAlgo_t *out) {
  return library->functions.cublasLtMatmulAlgoInit(library->handle, objects->compute, objects->scale_type,
                                                   objects->operand, objects->operand, objects->result, objects->result,
                                                   id, out);
}

static cublasStatus_t configure(struct library *library, const struct objects *objects,
                                const int32_t attributes[ALGORITHM_ATTRIBUTES], cublasLtMatmulAlgo_t *out) {
  cublasStatus_t result = init(library, objects, attributes[ALGORITHM_ID], out);
  return result == CUBLAS_STATUS_SUCCESS ? attributes_set(&library->functions, attributes, out) : result;
}

static cublasStatus_t check(struct library *library, const struct objects *objects,
                            const cublasLtMatmulAlgo_t *algorithm) {
  cublasLtMatmulHeuristicResult_t answer;
  cublasStatus_t result = library->functions.cublasLtMatmulAlgoCheck(
      library->handle, objects->operation, objects->a, objects->b, objects->d, objects->d, algorithm, &answer);
  if (result == CUBLAS_STATUS_SUCCESS && answer.workspaceSize > library->workspace_bytes)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return result;
}

enum status library_algorithm(struct library *library, const struct library_product *product,
                              const int32_t attributes[ALGORITHM_ATTRIBUTES], cublasLtMatmulAlgo_t *out,
                              struct error *error) {
  struct objects objects;
  if (!library_keeps_sums(product->format, attributes))
    return error_set(error, STATUS_UNSUPPORTED, "%d slices of K lose too much of %s sums",
                     (int)attributes[ALGORITHM_SPLIT_K], gemm_format_name(product->format));
  enum status status = objects_create(&library->functions, product, &objects, error);
  if (status != STATUS_OK)
    return status;
  cublasStatus_t result = configure(library, &objects, attributes, out);
  if (result == CUBLAS_STATUS_SUCCESS)
    result = check(library, &objects, out);
  objects_destroy(&library->functions, &objects);
  return cublaslt_check(result, "checking an algorithm", error);
}

uint64_t library_workspace(struct library *library, const struct library_product *product,
                           const int32_t attributes[ALGORITHM_ATTRIBUTES]) {
  struct objects objects;
  cublasLtMatmulAlgo_t algorithm;
  cublasLtMatmulHeuristicResult_t answer = {.workspaceSize = 0};
  struct error ignored;
  if (objects_create(&library->functions, product, &objects, &ignored) != STATUS_OK)
    return 0;
  if (configure(library, &objects, attributes, &algorithm) == CUBLAS_STATUS_SUCCESS &&
      library->functions.cublasLtMatmulAlgoCheck(library->handle, objects.operation, objects.a, objects.b, objects.d,
                                                 objects.d, &algorithm, &answer) != CUBLAS_STATUS_SUCCESS)
    answer.workspaceSize = 0;
  objects_destroy(&library->functions, &objects);
  return answer.workspaceSize;
}

/* ---- listing */

struct listing {
  struct library *library;
  const struct objects *objects;
  enum gemm_format format;
  int32_t (*out)[ALGORITHM_ATTRIBUTES];
  int count, most;
};

static void add(struct listing *listing, const int32_t attributes[ALGORITHM_ATTRIBUTES]) {
  for (int i = 0; i < listing->count; i++)
    if (memcmp(listing->out[i], attributes, sizeof listing->out[i]) == 0)
      return;
  if (listing->count < listing->most)
    memcpy(listing->out[listing->count++], attributes, sizeof *listing->out);
}

static void add_heuristic(struct listing *listing) {
  struct library *library = listing->library;
  const struct objects *objects = listing->objects;
  cublasLtMatmulHeuristicResult_t results[HEURISTIC_MOST];
  int count = 0;
  if (library->functions.cublasLtMatmulAlgoGetHeuristic(library->handle, objects->operation, objects->a, objects->b,
                                                        objects->d, objects->d, library->preference, HEURISTIC_MOST,
                                                        results, &count) != CUBLAS_STATUS_SUCCESS)
    return;
  for (int i = 0; i < count; i++) {
    int32_t attributes[ALGORITHM_ATTRIBUTES];
    if (results[i].state != CUBLAS_STATUS_SUCCESS || results[i].workspaceSize > library->workspace_bytes)
      continue;
    attributes_get(&library->functions, &results[i].algo, attributes);
    if (library_keeps_sums(listing->format, attributes))
      add(listing, attributes);
  }
}

/* A list that the library has of an algorithm; one value 0 where it has none. */
static int capabilities(struct library *library, const cublasLtMatmulAlgo_t *algorithm,
                        cublasLtMatmulAlgoCapAttributes_t name, uint32_t *out, int most) {
  size_t written = 0;
  out[0] = 0;
  if (library->functions.cublasLtMatmulAlgoCapGetAttribute(algorithm, name, out, (size_t)most * sizeof *out,
                                                           &written) != CUBLAS_STATUS_SUCCESS ||
      written < sizeof *out)
    return 1;
  return (int)(written / sizeof *out);
}

static void try_one(struct listing *listing, const int32_t attributes[ALGORITHM_ATTRIBUTES]) {
  cublasLtMatmulAlgo_t algorithm;
  if (listing->count < listing->most &&
      configure(listing->library, listing->objects, attributes, &algorithm) == CUBLAS_STATUS_SUCCESS &&
      check(listing->library, listing->objects, &algorithm) == CUBLAS_STATUS_SUCCESS)
    add(listing, attributes);
}

static void add_algorithm(struct listing *listing, int id, bool all) {
  cublasLtMatmulAlgo_t algorithm;
  uint32_t tiles[VALUES_MOST], stages[VALUES_MOST], custom_most = 0;
  if (init(listing->library, listing->objects, id, &algorithm) != CUBLAS_STATUS_SUCCESS)
    return;
  int tile_count = capabilities(listing->library, &algorithm, CUBLASLT_ALGO_CAP_TILE_IDS, tiles, VALUES_MOST);
  int stage_count = capabilities(listing->library, &algorithm, CUBLASLT_ALGO_CAP_STAGES_IDS, stages, VALUES_MOST);
  (void)capabilities(listing->library, &algorithm, CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX, &custom_most, 1);
  int clusters = all ? CLUSTERS_MOST : 1;
  for (int tile = 0; tile < tile_count; tile++)
    for (int stage = 0; stage < stage_count; stage++)
      for (uint32_t custom = 0; custom <= (all ? custom_most : 0); custom++)
        for (int cluster = 0; cluster < clusters && listing->count < listing->most; cluster++) {
          int32_t attributes[ALGORITHM_ATTRIBUTES] = {[ALGORITHM_ID] = id,
                                                      [ALGORITHM_TILE] = (int32_t)tiles[tile],
                                                      [ALGORITHM_STAGES] = (int32_t)stages[stage],
                                                      [ALGORITHM_CUSTOM] = (int32_t)custom,
                                                      [ALGORITHM_CLUSTER] = cluster,
                                                      [ALGORITHM_SPLIT_K] = 1};
          try_one(listing, attributes);
        }
}

int library_list(struct library *library, const struct library_product *product, bool all,
                 int32_t (*out)[ALGORITHM_ATTRIBUTES], int most) {
  struct objects objects;
  struct error ignored;
  int ids[IDS_MOST], id_count = 0;
  if (objects_create(&library->functions, product, &objects, &ignored) != STATUS_OK)
    return 0;
  struct listing listing = {
      .library = library, .objects = &objects, .format = product->format, .out = out, .most = most};
  add_heuristic(&listing);
  if (library->functions.cublasLtMatmulAlgoGetIds(library->handle, objects.compute, objects.scale_type, objects.operand,
                                                  objects.operand, objects.result, objects.result, IDS_MOST, ids,
                                                  &id_count) == CUBLAS_STATUS_SUCCESS)
    for (int i = 0; i < id_count && listing.count < most; i++)
      add_algorithm(&listing, ids[i], all);
  objects_destroy(&library->functions, &objects);
  return listing.count;
}
