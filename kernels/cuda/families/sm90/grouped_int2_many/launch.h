/* Launcher of grouped_int2_many/kernel.cuh. */
#pragma once

#include "../../../linkage.h"
#include "../../tiles.h"
#include "config.h"

#include <cuda.h>
#include <driver_types.h>

C_LINKAGE_BEGIN

/* Queues the product on a device of `sms` multiprocessors, tiles of up to `columns` rows, which are some that config.h
 * has. `x`: tensor maps of the sorted rows, whole units of K, in boxes of GROUPED_INT2_MANY_BOX. */
cudaError_t grouped_int2_many_launch(cudaStream_t stream, int columns, const struct tiles_product *product,
                                     const CUtensorMap x[GROUPED_INT2_MANY_BOXES], int sms, bool dependent);

C_LINKAGE_END
