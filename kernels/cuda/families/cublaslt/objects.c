#include "objects.h"

static cudaDataType_t data_type(enum gemm_type type) {
  switch (type) {
  case GEMM_F16:
    return CUDA_R_16F;
  case GEMM_BF16:
    return CUDA_R_16BF;
  case GEMM_S32:
    return CUDA_R_32I;
  case GEMM_INT8:
    return CUDA_R_8I;
  case GEMM_E4M3:
    return CUDA_R_8F_E4M3;
  default:
    return CUDA_R_32F;
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
  cudaDataType_t type = data_type(gemm_format_facts(product->format)->element);
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
