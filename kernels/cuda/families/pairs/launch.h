/* Launcher of pairs/kernel.cuh. */
#ifndef KERNELS_CUDA_FAMILIES_PAIRS_LAUNCH_H
#define KERNELS_CUDA_FAMILIES_PAIRS_LAUNCH_H

#include "product.h"

#include <driver_types.h>

#ifdef __cplusplus
extern "C" {
#endif

cudaError_t launch_pairs(cudaStream_t stream, const struct pairs_product *product);
/* One kernel of the file, which leads to the others. */
const void *kernel_of_pairs(void);

#ifdef __cplusplus
}
#endif
#endif
