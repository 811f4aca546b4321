/* Launcher of sm80/rows/kernel.cuh. */
#ifndef KERNELS_CUDA_FAMILIES_SM80_ROWS_LAUNCH_H
#define KERNELS_CUDA_FAMILIES_SM80_ROWS_LAUNCH_H

#include "../../sm90/hopper/product.h"
#include "config.h"

#include <driver_types.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Queues the product; `parts`: [split_k, m, n rounded up to 4] of 4 bytes, where K is shared by blocks. `dependent`: it
 * may be started before the kernel ahead in the stream has ended; never on devices older than 9.0, nor is `early`, by
 * which the kernel that adds slices is started so. */
cudaError_t sm80_rows_launch(cudaStream_t stream, const struct sm80_rows_config *config,
                             const struct sm80_rows_plan *plan, const struct hopper_product *product, void *parts,
                             bool dependent, bool early);

/* One kernel of the file, which leads to the others. */
const void *kernel_of_sm80_rows(void);

#ifdef __cplusplus
}
#endif
#endif
