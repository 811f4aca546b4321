/* Launcher of int2_few/kernel.cuh. */
#pragma once

#include "../../../linkage.h"
#include "../../tiles.h"
#include "config.h"

#include <driver_types.h>
#include <stdbool.h>

C_LINKAGE_BEGIN

/* Queues the product, by the narrowest of the weight's ways that holds it. `dependent`: it may be started before the
 * kernel ahead in the stream has ended. */
cudaError_t int2_few_launch(cudaStream_t stream, const struct int2_few_way ways[INT2_FEW_WAYS],
                            const struct tiles_product *product, bool dependent);

C_LINKAGE_END
