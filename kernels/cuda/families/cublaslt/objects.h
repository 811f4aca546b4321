/* cuBLASLt's descriptions of one product; for library*.c alone. */
#ifndef KERNELS_CUDA_FAMILIES_CUBLASLT_OBJECTS_H
#define KERNELS_CUDA_FAMILIES_CUBLASLT_OBJECTS_H

#include "library.h"

struct objects {
  cublasLtMatmulDesc_t operation;
  cublasLtMatrixLayout_t a, b, d;
  cublasComputeType_t compute;
  cudaDataType_t scale_type, operand, result;
};

MUST_CHECK enum status objects_create(const struct cublaslt *lt, const struct library_product *product,
                                      struct objects *out, struct error *error);
void objects_destroy(const struct cublaslt *lt, struct objects *objects);

#endif
