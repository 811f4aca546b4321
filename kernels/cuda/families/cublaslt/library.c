#include "objects.h"

enum { CANDIDATES = 8 };

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

static cudaDataType_t data_type(enum gemm_type type) {
  switch (type) {
  case GEMM_F16:
    return CUDA_R_16F;
  case GEMM_BF16:
    return CUDA_R_16BF;
  case GEMM_S32:
    return CUDA_R_32I;
  default:
    return CUDA_R_32F;
  }
}

static cudaDataType_t operand_type(enum gemm_format format) {
  switch (format) {
  case GEMM_FORMAT_INT8:
    return CUDA_R_8I;
  case GEMM_FORMAT_FP8:
    return CUDA_R_8F_E4M3;
  case GEMM_FORMAT_F16:
    return CUDA_R_16F;
  default:
    return CUDA_R_16BF;
  }
}

static cublasStatus_t scale_describe(const struct cublaslt *lt, cublasLtMatmulDesc_t operation,
                                     const struct library_product *product) {
  if (product->scale == LIBRARY_SCALE_NONE)
    return CUBLAS_STATUS_SUCCESS;
  bool blocks = product->scale == LIBRARY_SCALE_BLOCKS;
  int32_t a_mode = blocks ? CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F : CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
  int32_t b_mode = blocks ? CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F : CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
  const struct {
    cublasLtMatmulDescAttributes_t attribute;
    const void *value;
    size_t bytes;
  } rows[] = {
      {CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &a_mode, sizeof a_mode},
      {CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &b_mode, sizeof b_mode},
      {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &product->w_scale, sizeof product->w_scale},
      {CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &product->x_scale, sizeof product->x_scale},
  };
  cublasStatus_t result = CUBLAS_STATUS_SUCCESS;
  for (size_t i = 0; i < sizeof rows / sizeof *rows && result == CUBLAS_STATUS_SUCCESS; i++)
    result = lt->cublasLtMatmulDescSetAttribute(operation, rows[i].attribute, rows[i].value, rows[i].bytes);
  return result;
}

static cublasStatus_t bias_describe(const struct cublaslt *lt, cublasLtMatmulDesc_t operation,
                                    const struct library_product *product) {
  if (product->bias_type == GEMM_TYPE_NONE)
    return CUBLAS_STATUS_SUCCESS;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
  int32_t type = data_type(product->bias_type);
  cublasStatus_t result =
      lt->cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
  if (result == CUBLAS_STATUS_SUCCESS)
    result = lt->cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
  if (result == CUBLAS_STATUS_SUCCESS)
    result = lt->cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &product->bias,
                                                sizeof product->bias);
  return result;
}

/* FP8 runs without fast accumulation. What is left is the tensor core's own error, the same with every algorithm, scale
 * mode, M and K on an H200: a row of y is off by 1.2e-4 to 1.9e-4, by 3.3e-4 to 6.6e-4 where one element of x in 64 is
 * a thousand times larger, by more where y has few columns and they cancel. */
static cublasStatus_t operation_create(const struct cublaslt *lt, const struct library_product *product,
                                       cublasLtMatmulDesc_t *out) {
  bool integers = product->format == GEMM_FORMAT_INT8;
  cublasOperation_t transposed = CUBLAS_OP_T;
  int8_t fast = 0;
  cublasStatus_t result = lt->cublasLtMatmulDescCreate(out, integers ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F,
                                                       integers ? CUDA_R_32I : CUDA_R_32F);
  if (result == CUBLAS_STATUS_SUCCESS)
    result = lt->cublasLtMatmulDescSetAttribute(*out, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
  if (result == CUBLAS_STATUS_SUCCESS && product->format == GEMM_FORMAT_FP8)
    result = lt->cublasLtMatmulDescSetAttribute(*out, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast);
  if (result == CUBLAS_STATUS_SUCCESS)
    result = scale_describe(lt, *out, product);
  if (result == CUBLAS_STATUS_SUCCESS)
    result = bias_describe(lt, *out, product);
  return result;
}

void objects_destroy(const struct cublaslt *lt, struct objects *objects) {
  if (objects->d)
    lt->cublasLtMatrixLayoutDestroy(objects->d);
  if (objects->b)
    lt->cublasLtMatrixLayoutDestroy(objects->b);
  if (objects->a)
    lt->cublasLtMatrixLayoutDestroy(objects->a);
  if (objects->operation)
    lt->cublasLtMatmulDescDestroy(objects->operation);
}

enum status objects_create(const struct cublaslt *lt, const struct library_product *product, struct objects *out,
                           struct error *error) {
  cudaDataType_t type = operand_type(product->format);
  uint64_t n = (uint64_t)product->n, k = (uint64_t)product->k, m = (uint64_t)product->m;
  bool integers = product->format == GEMM_FORMAT_INT8;
  *out = (struct objects){.compute = integers ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F,
                          .scale_type = integers ? CUDA_R_32I : CUDA_R_32F,
                          .operand = type,
                          .result = data_type(product->d_type)};
  cublasStatus_t result = operation_create(lt, product, &out->operation);
  if (result == CUBLAS_STATUS_SUCCESS)
    result = lt->cublasLtMatrixLayoutCreate(&out->a, type, k, n, product->k);
  if (result == CUBLAS_STATUS_SUCCESS)
    result = lt->cublasLtMatrixLayoutCreate(&out->b, type, k, m, product->k);
  if (result == CUBLAS_STATUS_SUCCESS)
    result = lt->cublasLtMatrixLayoutCreate(&out->d, data_type(product->d_type), n, m, product->n);
  enum status status = cublaslt_check(result, "describing a product", error);
  if (status != STATUS_OK)
    objects_destroy(lt, out);
  return status;
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
