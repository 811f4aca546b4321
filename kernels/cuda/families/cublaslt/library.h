/* One product by cuBLASLt: asking it for an algorithm, and running one. In its terms (column-major) y^T = W^T^T * x^T:
 * A is W [K, N] transposed, B is x [K, M], D is y [N, M]. */
#ifndef KERNELS_CUDA_FAMILIES_CUBLASLT_LIBRARY_H
#define KERNELS_CUDA_FAMILIES_CUBLASLT_LIBRARY_H

#include "../../runtime/cublaslt.h"
#include "config.h"

#include <driver_types.h>
#include <stdbool.h>
#include <stdint.h>

struct library {
  struct cublaslt functions;
  cublasLtHandle_t handle;
  cublasLtMatmulPreference_t preference;
  size_t workspace_bytes; /* that a product may use */
  const void *anywhere;   /* device memory that stands for operands where the library is only asked about a product */
};

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

/* The device is current. */
MUST_CHECK enum status library_open(const char *path, size_t workspace_bytes, struct library *out, struct error *error);
void library_close(struct library *library);

/* The library's first choice that works; UNSUPPORTED where it has none. */
MUST_CHECK enum status library_find(struct library *library, const struct library_product *product,
                                    cublasLtMatmulAlgo_t *out, struct error *error);
/* Algorithms by their attributes: the heuristic's list first, then what else the library has with these tiles and
 * stages (`all`: with every custom option and cluster, too), as far as it says that they take the product. Returns how
 * many, at most `most`. */
int library_list(struct library *library, const struct library_product *product, bool all,
                 int32_t (*out)[ALGORITHM_ATTRIBUTES], int most);
/* The algorithm of these attributes, where the library says that it takes the product; UNSUPPORTED. */
MUST_CHECK enum status library_algorithm(struct library *library, const struct library_product *product,
                                         const int32_t attributes[ALGORITHM_ATTRIBUTES], cublasLtMatmulAlgo_t *out,
                                         struct error *error);
void library_attributes(struct library *library, const cublasLtMatmulAlgo_t *algorithm,
                        int32_t out[ALGORITHM_ATTRIBUTES]);

/* UNSUPPORTED, with nothing queued, where the algorithm does not take these sizes. */
MUST_CHECK enum status library_run(struct library *library, const struct library_product *product,
                                   const cublasLtMatmulAlgo_t *algorithm, void *workspace, cudaStream_t stream,
                                   struct error *error);

#endif
