/* Launcher of checksum.cuh. */
#ifndef KERNELS_CUDA_WEIGHT_CHECKSUM_H
#define KERNELS_CUDA_WEIGHT_CHECKSUM_H

#include <driver_types.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* cudaSuccess where this build has code for the current device. */
cudaError_t launch_check(void);

/* Sum over `bytes`, a multiple of 8, of each 8-byte word mixed with its place; does not depend on the order. */
cudaError_t launch_checksum(cudaStream_t stream, const void *data, uint64_t bytes, uint64_t *out);

/* One kernel of the file, which leads to the others. */
const void *kernel_of_checksum(void);

#ifdef __cplusplus
}
#endif
#endif
