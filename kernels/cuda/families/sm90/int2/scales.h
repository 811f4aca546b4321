/* What products with pairs of x want to know of a weight's scales. */
#ifndef KERNELS_CUDA_FAMILIES_SM90_INT2_SCALES_H
#define KERNELS_CUDA_FAMILIES_SM90_INT2_SCALES_H

#include <driver_types.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether tiles of int2/layout.h, `bytes` of them, have a scale of 2^15 or more, twice which is no f16: 1 or 0. */
cudaError_t launch_int2_large_scales(cudaStream_t stream, const void *tiles, uint64_t bytes, uint64_t *out);

/* One kernel of the file, which leads to the others. */
const void *kernel_of_int2_scales(void);

#ifdef __cplusplus
}
#endif
#endif
