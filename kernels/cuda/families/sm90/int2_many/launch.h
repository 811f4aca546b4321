/* Launcher of int2_many/kernel.cuh. */
#ifndef KERNELS_CUDA_FAMILIES_SM90_INT2_MANY_LAUNCH_H
#define KERNELS_CUDA_FAMILIES_SM90_INT2_MANY_LAUNCH_H

#include "config.h"
#include "product.h"

#include <cuda.h>
#include <driver_types.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Queues the product. `x`: tensor map of its rows, whole units of K, in boxes of config->columns rows. `dependent`: W
 * may be read before the kernel ahead in the stream has ended. Up to INT2_MANY_SPLIT_MOST neighbours wait for each
 * other: `together` where so many products run at the same time that some of each might fill the device and wait for
 * the others. It takes 0.8 us longer. */
cudaError_t int2_many_launch(cudaStream_t stream, const struct int2_many_config *config,
                             const struct int2_many_plan *plan, const struct int2_many_product *product,
                             const CUtensorMap *x, bool dependent, bool together);

/* One kernel of each of its files, which lead to the others. */
const void *kernel_of_int2_many(void);
const void *kernel_of_int2_many_fewer(void);
const void *kernel_of_int2_many_bf16(void);
const void *kernel_of_int2_many_bf16_fewer(void);
const void *kernel_of_int2_many_int8(void);

#ifdef __cplusplus
}
#endif
#endif
