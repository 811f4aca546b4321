/* Launcher of sm80/packed/kernel.cuh. */
#ifndef KERNELS_CUDA_FAMILIES_SM80_PACKED_LAUNCH_H
#define KERNELS_CUDA_FAMILIES_SM80_PACKED_LAUNCH_H

#include "config.h"
#include "product.h"

#include <driver_types.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Queues the product. `dependent`: it may be started before the kernel ahead in the stream has ended; never on devices
 * older than 9.0, nor is `early`, by which the kernel that adds parts is started so. */
cudaError_t sm80_packed_launch(cudaStream_t stream, const struct sm80_packed_config *config,
                               const struct sm80_packed_plan *plan, const struct sm80_packed_product *product,
                               bool dependent, bool early);

/* One kernel of each file, which leads to the others. */
const void *kernel_of_sm80_int2(void);
const void *kernel_of_sm80_int4(void);
const void *kernel_of_sm80_mxfp4(void);
const void *kernel_of_sm80_nvfp4(void);
const void *kernel_of_sm80_packed_parts(void);

#ifdef __cplusplus
}
#endif
#endif
