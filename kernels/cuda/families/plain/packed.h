/* Launcher of plain/packed_kernel.cuh. */
#ifndef KERNELS_CUDA_FAMILIES_PLAIN_PACKED_H
#define KERNELS_CUDA_FAMILIES_PLAIN_PACKED_H

#include "product.h"

#include <driver_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Blocks that compute y [m, n] of a slice of K. */
int64_t packed_blocks(int64_t m, int64_t n);
cudaError_t launch_packed(cudaStream_t stream, const struct packed_product *product);

/* One kernel of the file, which leads to the others. */
const void *kernel_of_packed(void);

#ifdef __cplusplus
}
#endif
#endif
