/* One product by cuBLASLt: asking it for an algorithm, and running one. In its terms (column-major) y^T = W^T^T * x^T:
 * A is W [K, N] transposed, B is x [K, M], D is y [N, M]. */
#pragma once

#include "objects.h"

struct library {
  struct cublaslt functions;
  cublasLtHandle_t handle;
  cublasLtMatmulPreference_t preference;
  size_t workspace_bytes; /* that a product may use */
  const void *anywhere;   /* device memory that stands for operands where the library is only asked about a product */
};

/* The device is current. */
MUST_CHECK enum status library_open(const char *path, size_t workspace_bytes, struct library *out, struct error *error);
void library_close(struct library *library);

/* The library's first choice that works; UNSUPPORTED where it has none. */
MUST_CHECK enum status library_find(struct library *library, const struct library_product *product,
                                    cublasLtMatmulAlgo_t *out, struct error *error);

/* UNSUPPORTED, with nothing queued, where the algorithm does not take these sizes. */
MUST_CHECK enum status library_run(struct library *library, const struct library_product *product,
                                   const cublasLtMatmulAlgo_t *algorithm, void *workspace, cudaStream_t stream,
                                   struct error *error);
