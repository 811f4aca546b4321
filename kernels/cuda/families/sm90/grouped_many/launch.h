/* Launcher of the kernel that grouped_many/config.h describes. */
#ifndef KERNELS_CUDA_FAMILIES_SM90_GROUPED_MANY_LAUNCH_H
#define KERNELS_CUDA_FAMILIES_SM90_GROUPED_MANY_LAUNCH_H

#include "../grouped/product.h"
#include "config.h"

#include <cuda.h>
#include <driver_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Queues the product on a device of `sms` multiprocessors, tiles of up to `columns` rows. `w`: a tensor map of all
 * experts' rows in boxes of GROUPED_MANY_ROWS; `x`: of the sorted rows in boxes of GROUPED_MANY_BOX, which may be read
 * GROUPED_MANY_COLUMNS beyond the last. */
cudaError_t grouped_many_launch(cudaStream_t stream, int columns, const struct grouped_product *product,
                                const CUtensorMap *w, const CUtensorMap x[GROUPED_MANY_BOXES], int sms, bool dependent);

/* One kernel of the file, which leads to the others. */
const void *kernel_of_grouped_many(void);

#ifdef __cplusplus
}
#endif
#endif
