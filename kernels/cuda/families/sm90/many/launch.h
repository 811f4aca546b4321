/* Launcher of the kernel that many/config.h describes. */
#ifndef KERNELS_CUDA_FAMILIES_SM90_MANY_LAUNCH_H
#define KERNELS_CUDA_FAMILIES_SM90_MANY_LAUNCH_H

#include "../hopper/product.h"
#include "config.h"

#include <cuda.h>
#include <driver_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Queues the product on a device of `sms` multiprocessors. `w`, `x`: tensor maps of its operands, in boxes of
 * config->columns and MANY_ROWS rows. */
cudaError_t many_launch(cudaStream_t stream, const struct many_config *config, const struct hopper_product *product,
                        const CUtensorMap *w, const CUtensorMap *x, int sms);

/* One kernel of the file, which leads to the others. */
const void *kernel_of_many(void);

#ifdef __cplusplus
}
#endif
#endif
