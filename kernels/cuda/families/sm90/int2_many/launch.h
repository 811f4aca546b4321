/* Launcher of int2_many/kernel.cuh. */
#pragma once

#include "../../../linkage.h"
#include "../../tiles.h"
#include "config.h"

#include <cuda.h>
#include <driver_types.h>
#include <stdbool.h>

C_LINKAGE_BEGIN

/* Queues the product. `x`: tensor map of its rows, whole units of K, in boxes of config->columns rows. `dependent`: W
 * may be read before the kernel ahead in the stream has ended. Up to INT2_MANY_SPLIT_MOST neighbours wait for each
 * other: `together` where so many products run at the same time that some of each might fill the device and wait for
 * the others. It takes 0.8 us longer. */
cudaError_t int2_many_launch(cudaStream_t stream, const struct int2_many_config *config,
                             const struct int2_many_plan *plan, const struct tiles_product *product,
                             const CUtensorMap *x, bool dependent, bool together);

C_LINKAGE_END
