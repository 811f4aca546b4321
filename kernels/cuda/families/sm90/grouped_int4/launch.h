/* Launcher of the kernels that grouped_int4/config.h describes. */
#ifndef KERNELS_CUDA_FAMILIES_SM90_GROUPED_INT4_LAUNCH_H
#define KERNELS_CUDA_FAMILIES_SM90_GROUPED_INT4_LAUNCH_H

#include "config.h"
#include "product.h"

#include <driver_types.h>

#ifdef __cplusplus
extern "C" {
#endif

cudaError_t grouped_int4_launch(cudaStream_t stream, const struct int4_form *form, const struct grouped_int4_plan *plan,
                                const struct grouped_int4_product *product, int sms, bool dependent);

/* One kernel of the file, which leads to the others. */
const void *kernel_of_grouped_int4(void);

#ifdef __cplusplus
}
#endif
#endif
