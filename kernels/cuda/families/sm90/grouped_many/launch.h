/* Launcher of the kernel that grouped_many/config.h describes. */
#pragma once

#include "../../../linkage.h"
#include "../hopper/product.h"
#include "config.h"

#include <cuda.h>
#include <driver_types.h>

C_LINKAGE_BEGIN

/* Queues the product on a device of `sms` multiprocessors, tiles of up to `columns` rows. `w`: a tensor map of all
 * experts' rows in boxes of GROUPED_MANY_ROWS; `x`: of the sorted rows in boxes of GROUPED_MANY_BOX, which may be read
 * GROUPED_MANY_COLUMNS beyond the last. */
cudaError_t grouped_many_launch(cudaStream_t stream, int columns, const struct hopper_product *product,
                                const CUtensorMap *w, const CUtensorMap x[GROUPED_MANY_BOXES], int sms, bool dependent);

C_LINKAGE_END
