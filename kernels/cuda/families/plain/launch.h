/* Launcher of plain/kernel.cuh. */
#ifndef KERNELS_CUDA_FAMILIES_PLAIN_LAUNCH_H
#define KERNELS_CUDA_FAMILIES_PLAIN_LAUNCH_H

#include "product.h"

#include <driver_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Blocks that compute sums [m, n] of a slice of K. */
int64_t plain_blocks(int64_t m, int64_t n);
cudaError_t launch_plain(cudaStream_t stream, const struct plain_product *product);

/* One kernel of the file, which leads to the others. */
const void *kernel_of_plain(void);

#ifdef __cplusplus
}
#endif
#endif
