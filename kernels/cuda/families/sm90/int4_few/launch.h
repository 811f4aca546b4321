/* Launcher of int4_few/kernel.cuh. */
#pragma once

#include "../../../linkage.h"
#include "../../tiles.h"
#include "config.h"

#include <driver_types.h>
#include <stdbool.h>

C_LINKAGE_BEGIN

/* Queues the product. `dependent`: it may be started before the kernel ahead in the stream has ended. */
cudaError_t int4_few_launch(cudaStream_t stream, const struct int4_form *form, const struct int4_few_way *way,
                            const struct tiles_product *product, bool dependent);

C_LINKAGE_END
