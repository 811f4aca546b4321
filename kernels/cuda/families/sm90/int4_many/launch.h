/* Launcher of int4_many/kernel.cuh. */
#ifndef KERNELS_CUDA_FAMILIES_SM90_INT4_MANY_LAUNCH_H
#define KERNELS_CUDA_FAMILIES_SM90_INT4_MANY_LAUNCH_H

#include "../int2_many/launch.h"
#include "../int4/form.h"
#include "config.h"

#ifdef __cplusplus
extern "C" {
#endif

/* As int2_many_launch; product->x_type tells INT4A8 from INT4. */
cudaError_t int4_many_launch(cudaStream_t stream, const struct int2_many_config *config,
                             const struct int2_many_plan *plan, enum int4_many_kind kind, const struct int4_form *form,
                             const struct int2_many_product *product, const CUtensorMap *x, bool dependent,
                             bool together);

/* One kernel of each of its files, which lead to the others. */
const void *kernel_of_int4_many_int8(void);
const void *kernel_of_int4_many_f16(void);
const void *kernel_of_int4_many_bf16(void);
const void *kernel_of_int4_many_int8_zeros(void);
const void *kernel_of_int4_many_f16_zeros(void);
const void *kernel_of_int4_many_bf16_zeros(void);

#ifdef __cplusplus
}
#endif
#endif
