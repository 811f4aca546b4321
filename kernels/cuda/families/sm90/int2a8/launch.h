/* Launcher of int2a8/kernel.cuh. */
#ifndef KERNELS_CUDA_FAMILIES_SM90_INT2A8_LAUNCH_H
#define KERNELS_CUDA_FAMILIES_SM90_INT2A8_LAUNCH_H

#include "config.h"
#include "product.h"

#include <driver_types.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Queues the product. `dependent`: W may be read before the kernel ahead in the stream has ended. */
cudaError_t int2a8_launch(cudaStream_t stream, const struct int2a8_way *way, const struct int2a8_product *product,
                          bool dependent);

/* One kernel of the file, which leads to the others. */
const void *kernel_of_int2a8(void);

#ifdef __cplusplus
}
#endif
#endif
