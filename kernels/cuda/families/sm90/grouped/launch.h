/* Launcher of the kernel that grouped/config.h describes. */
#ifndef KERNELS_CUDA_FAMILIES_SM90_GROUPED_LAUNCH_H
#define KERNELS_CUDA_FAMILIES_SM90_GROUPED_LAUNCH_H

#include "config.h"
#include "product.h"

#include <cuda.h>
#include <driver_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Queues the product on a device of `sms` multiprocessors. `w`: a tensor map of all experts' rows in boxes of 64 *
 * config->groups; `x`: of the sorted rows in boxes of GROUPED_WIDTH, as far as config->columns goes. */
cudaError_t grouped_launch(cudaStream_t stream, const struct grouped_config *config,
                           const struct grouped_product *product, const CUtensorMap *w,
                           const CUtensorMap x[GROUPED_WIDTHS], int sms, bool dependent);

/* One kernel of the file, which leads to the others. */
const void *kernel_of_grouped(void);

#ifdef __cplusplus
}
#endif
#endif
