/* One product of rows that are staged. */
#ifndef KERNELS_CUDA_EXEC_PRODUCT_H
#define KERNELS_CUDA_EXEC_PRODUCT_H

#include "chunk.h"

/* The product of what is staged, to y or to v. */
MUST_CHECK enum status chunk_compute(struct backend *backend, struct chunk *chunk, struct error *error);

#endif
