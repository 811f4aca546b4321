/* Launcher of int4_few/kernel.cuh. */
#ifndef KERNELS_CUDA_FAMILIES_SM90_INT4_FEW_LAUNCH_H
#define KERNELS_CUDA_FAMILIES_SM90_INT4_FEW_LAUNCH_H

#include "config.h"
#include "product.h"

#include <driver_types.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Queues the product. `dependent`: it may be started before the kernel ahead in the stream has ended. */
cudaError_t int4_few_launch(cudaStream_t stream, const struct int4_form *form, const struct int4_few_way *way,
                            const struct int4_few_product *product, bool dependent);

/* One kernel of each file, which leads to the others. */
const void *kernel_of_int4_few_f16(void);
const void *kernel_of_int4_few_bf16(void);

#ifdef __cplusplus
}
#endif
#endif
