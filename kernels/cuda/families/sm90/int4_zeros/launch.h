/* Launcher of int4_zeros/kernel.cuh. */
#ifndef KERNELS_CUDA_FAMILIES_SM90_INT4_ZEROS_LAUNCH_H
#define KERNELS_CUDA_FAMILIES_SM90_INT4_ZEROS_LAUNCH_H

#include "product.h"

#include <driver_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Queues sums of x, then y. */
cudaError_t int4_zeros_launch(cudaStream_t stream, const struct int4_zeros_product *product);

const void *kernel_of_int4_zeros(void);

#ifdef __cplusplus
}
#endif
#endif
