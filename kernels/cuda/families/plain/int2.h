/* Launcher of plain/int2_kernel.cuh. */
#ifndef KERNELS_CUDA_FAMILIES_PLAIN_INT2_H
#define KERNELS_CUDA_FAMILIES_PLAIN_INT2_H

#include "product.h"

#include <driver_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Blocks that compute y [m, n] of a slice of K. */
int64_t int2_blocks(int64_t m, int64_t n);
cudaError_t launch_int2(cudaStream_t stream, const struct int2_product *product);

/* One kernel of the file, which leads to the others. */
const void *kernel_of_int2(void);

#ifdef __cplusplus
}
#endif
#endif
