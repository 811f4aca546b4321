/* Launcher of sums.cuh. */
#ifndef KERNELS_CUDA_TENSORS_SUMS_H
#define KERNELS_CUDA_TENSORS_SUMS_H

#include "product.h"

#include <driver_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Behind the kernel that makes the partial sums. */
cudaError_t tensors_sums_launch(cudaStream_t stream, const struct tensors_sums *sums);
const void *kernel_of_tensors_sums(void);

#ifdef __cplusplus
}
#endif
#endif
