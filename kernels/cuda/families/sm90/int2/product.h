/* Products with weights of two bits, by kernels of ours. */
#ifndef KERNELS_CUDA_FAMILIES_SM90_INT2_PRODUCT_H
#define KERNELS_CUDA_FAMILIES_SM90_INT2_PRODUCT_H

#include "../../../exec/chunk.h"

/* The product of what is staged, as chunk_compute. */
MUST_CHECK enum status int2_product_run(struct backend *backend, struct chunk *chunk, struct error *error);

#endif
