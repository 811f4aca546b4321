/* cuBLASLt's descriptions of one product. In its terms (column-major) y^T = W^T^T * x^T: A is W [K, N] transposed, B is
 * x [K, M], D is y [N, M]. */
#pragma once

#include "../../runtime/cublaslt.h"
#include "config.h"

#include <driver_types.h>
#include <stdbool.h>
#include <stdint.h>

/* Sizes as padded. All pointers are device memory, aligned to 256 bytes. */
struct library_product {
  enum gemm_format format;
  int64_t n, k, m;
  const void *w, *x;
  const float *w_scale, *x_scale; /* BLOCKS: [n / 128, round_up(k / 128, 4)] and [k / 128, m] */
  enum library_scale scale;
  enum gemm_type d_type;
  void *d;                  /* [m, n] */
  enum gemm_type bias_type; /* GEMM_TYPE_NONE: no bias */
  const void *bias;         /* [n] */
};

struct objects {
  cublasLtMatmulDesc_t operation;
  cublasLtMatrixLayout_t a, b, d;
  cublasComputeType_t compute;
  cudaDataType_t scale_type, operand, result;
};

MUST_CHECK enum status objects_create(const struct cublaslt *lt, const struct library_product *product,
                                      struct objects *out, struct error *error);
void objects_destroy(const struct cublaslt *lt, struct objects *objects);
