/* Launcher of grouped_int2_many/kernel.cuh. */
#ifndef KERNELS_CUDA_FAMILIES_SM90_GROUPED_INT2_MANY_LAUNCH_H
#define KERNELS_CUDA_FAMILIES_SM90_GROUPED_INT2_MANY_LAUNCH_H

#include "config.h"
#include "product.h"

#include <cuda.h>
#include <driver_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Queues the product on a device of `sms` multiprocessors, tiles of up to `columns` rows, which are some that config.h
 * has. `x`: tensor maps of the sorted rows, whole units of K, in boxes of GROUPED_INT2_MANY_BOX. */
cudaError_t grouped_int2_many_launch(cudaStream_t stream, int columns, const struct grouped_int2_many_product *product,
                                     const CUtensorMap x[GROUPED_INT2_MANY_BOXES], int sms, bool dependent);

/* One kernel of each of its files, which lead to the others. */
const void *kernel_of_grouped_int2_many(void);
const void *kernel_of_grouped_int2_many_bf16(void);
const void *kernel_of_grouped_int2_many_int8(void);

#ifdef __cplusplus
}
#endif
#endif
