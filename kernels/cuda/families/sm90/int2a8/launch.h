/* Launcher of int2a8/kernel.cuh. */
#pragma once

#include "../../../linkage.h"
#include "../../tiles.h"
#include "config.h"

#include <driver_types.h>
#include <stdbool.h>

C_LINKAGE_BEGIN

/* Queues the product. `dependent`: W may be read before the kernel ahead in the stream has ended. */
cudaError_t int2a8_launch(cudaStream_t stream, const struct int2a8_way *way, const struct tiles_product *product,
                          bool dependent);

C_LINKAGE_END
