/* Launcher of sm80/int2/kernel.cuh. */
#ifndef KERNELS_CUDA_FAMILIES_SM80_INT2_LAUNCH_H
#define KERNELS_CUDA_FAMILIES_SM80_INT2_LAUNCH_H

#include "config.h"
#include "product.h"

#include <driver_types.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Queues the product. `dependent`: it may be started before the kernel ahead in the stream has ended; never on devices
 * older than 9.0, nor is `early`, by which the kernel that adds slices is started so. */
cudaError_t sm80_int2_launch(cudaStream_t stream, const struct sm80_int2_config *config,
                             const struct sm80_int2_plan *plan, const struct sm80_int2_product *product, bool dependent,
                             bool early);

/* One kernel of the file, which leads to the others. */
const void *kernel_of_sm80_int2(void);

#ifdef __cplusplus
}
#endif
#endif
