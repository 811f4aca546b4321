/* Launcher of int2_few/kernel.cuh. */
#ifndef KERNELS_CUDA_FAMILIES_SM90_INT2_FEW_LAUNCH_H
#define KERNELS_CUDA_FAMILIES_SM90_INT2_FEW_LAUNCH_H

#include "config.h"
#include "product.h"

#include <driver_types.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Queues the product, by the narrowest of the weight's ways that holds it. `dependent`: it may be started before the
 * kernel ahead in the stream has ended. */
cudaError_t int2_few_launch(cudaStream_t stream, const struct int2_few_way ways[INT2_FEW_WAYS],
                            const struct int2_few_product *product, bool dependent);

/* One kernel of the file, which leads to the others. */
const void *kernel_of_int2_few(void);

#ifdef __cplusplus
}
#endif
#endif
