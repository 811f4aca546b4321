#include "library.h"

#include "attributes.h"

enum { CANDIDATES = 16 };

enum status library_open(const char *path, size_t workspace_bytes, struct library *out, struct error *error) {
  *out = (struct library){.workspace_bytes = workspace_bytes};
  enum status status = cublaslt_open(path, &out->functions, error);
  if (status != STATUS_OK)
    return status;
  /* No sums in y's own type and no order that changes from run to run: split sums stay f32 or s32. */
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  const struct cublaslt *lt = &out->functions;
  cublasStatus_t result = lt->cublasLtCreate(&out->handle);
  if (result == CUBLAS_STATUS_SUCCESS)
    result = lt->cublasLtMatmulPreferenceCreate(&out->preference);
  if (result == CUBLAS_STATUS_SUCCESS)
    result = lt->cublasLtMatmulPreferenceSetAttribute(out->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                      &out->workspace_bytes, sizeof out->workspace_bytes);
  if (result == CUBLAS_STATUS_SUCCESS)
    result = lt->cublasLtMatmulPreferenceSetAttribute(out->preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                      &reductions, sizeof reductions);
  status = cublaslt_check(result, "starting cuBLASLt", error);
  if (status != STATUS_OK)
    library_close(out);
  return status;
}

void library_close(struct library *library) {
  if (library->preference)
    library->functions.cublasLtMatmulPreferenceDestroy(library->preference);
  if (library->handle)
    library->functions.cublasLtDestroy(library->handle);
  cublaslt_close(&library->functions);
  *library = (struct library){0};
}

enum status library_find(struct library *library, const struct library_product *product, cublasLtMatmulAlgo_t *out,
                         struct error *error) {
  const struct cublaslt *lt = &library->functions;
  cublasLtMatmulHeuristicResult_t results[CANDIDATES];
  struct objects objects;
  int count = 0;
  enum status status = objects_create(lt, product, &objects, error);
  if (status != STATUS_OK)
    return status;
  cublasStatus_t result =
      lt->cublasLtMatmulAlgoGetHeuristic(library->handle, objects.operation, objects.a, objects.b, objects.d, objects.d,
                                         library->preference, CANDIDATES, results, &count);
  objects_destroy(lt, &objects);
  status = cublaslt_check(result, "choosing an algorithm", error);
  if (status != STATUS_OK)
    return status;
  for (int i = 0; i < count; i++) {
    if (results[i].state != CUBLAS_STATUS_SUCCESS || results[i].workspaceSize > library->workspace_bytes)
      continue;
    int32_t attributes[ALGORITHM_ATTRIBUTES];
    attributes_get(lt, &results[i].algo, attributes);
    if (!library_keeps_sums(product->format, attributes))
      continue;
    *out = results[i].algo;
    return STATUS_OK;
  }
  return error_set(error, STATUS_UNSUPPORTED, "cuBLASLt has no algorithm for this product");
}

enum status library_run(struct library *library, const struct library_product *product,
                        const cublasLtMatmulAlgo_t *algorithm, void *workspace, cudaStream_t stream,
                        struct error *error) {
  static const float one = 1, zero = 0;
  static const int32_t one_integer = 1, zero_integer = 0;
  bool integers = product->format == GEMM_FORMAT_INT8;
  const void *alpha = integers ? (const void *)&one_integer : &one;
  const void *beta = integers ? (const void *)&zero_integer : &zero;
  struct objects objects;
  enum status status = objects_create(&library->functions, product, &objects, error);
  if (status != STATUS_OK)
    return status;
  cublasStatus_t result = library->functions.cublasLtMatmul(
      library->handle, objects.operation, alpha, product->w, objects.a, product->x, objects.b, beta, product->d,
      objects.d, product->d, objects.d, algorithm, workspace, library->workspace_bytes, stream);
  objects_destroy(&library->functions, &objects);
  return cublaslt_check(result, "starting a product", error);
}
