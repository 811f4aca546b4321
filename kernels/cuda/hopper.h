/* Launcher of the kernel that hopper_config.h describes. */
#ifndef KERNELS_CUDA_HOPPER_H
#define KERNELS_CUDA_HOPPER_H

#include "hopper_config.h"

#include <driver_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Queues the product. `dependent`: W may be read before the kernel ahead in the stream has ended. */
cudaError_t hopper_launch(cudaStream_t stream, const struct hopper_config *config, const struct hopper_product *product,
                          bool dependent);

#ifdef __cplusplus
}
#endif
#endif
