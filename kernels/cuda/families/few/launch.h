/* Launcher of the kernel that few/config.h describes. */
#ifndef KERNELS_CUDA_FAMILIES_FEW_LAUNCH_H
#define KERNELS_CUDA_FAMILIES_FEW_LAUNCH_H

#include "../sm90/hopper/product.h"
#include "config.h"

#include <driver_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Queues the product on a device of `sms` multiprocessors. `dependent`: W may be read before the kernel ahead in the
 * stream has ended. */
cudaError_t few_launch(cudaStream_t stream, const struct few_config *config, const struct hopper_product *product,
                       int sms, bool dependent);

/* One kernel of the file, which leads to the others. */
const void *kernel_of_few(void);

#ifdef __cplusplus
}
#endif
#endif
