/* Launcher of the kernel that hopper/config.h describes. */
#ifndef KERNELS_CUDA_FAMILIES_SM90_HOPPER_LAUNCH_H
#define KERNELS_CUDA_FAMILIES_SM90_HOPPER_LAUNCH_H

#include "config.h"
#include "product.h"

#include <driver_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Queues the product. */
cudaError_t hopper_launch(cudaStream_t stream, const struct hopper_config *config, const struct hopper_product *product,
                          const struct hopper_start *start);

/* One kernel of the file, which leads to the others. */
const void *kernel_of_hopper(void);

#ifdef __cplusplus
}
#endif
#endif
