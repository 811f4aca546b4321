/* Launchers of general.cuh. */
#ifndef KERNELS_CUDA_TENSORS_GENERAL_H
#define KERNELS_CUDA_TENSORS_GENERAL_H

#include "product.h"
#include "tile.h"

#include <driver_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* `vector`: elements that are loaded at a time: 1, 2, 4 or 8, to whose bytes x, W and their strides are aligned. */
cudaError_t general_launch(cudaStream_t stream, const struct tensors_product *product, int vector);
/* One slice, summed in double precision. */
cudaError_t general_plain_launch(cudaStream_t stream, const struct tensors_product *product);
const void *kernel_of_general(void);

#ifdef __cplusplus
}
#endif
#endif
