/* Launcher of sm80/packed/kernel.cuh. */
#pragma once

#include "../../../linkage.h"
#include "../../tiles.h"
#include "config.h"

#include <driver_types.h>
#include <stdbool.h>

C_LINKAGE_BEGIN

/* Queues the product. `dependent`: it may be started before the kernel ahead in the stream has ended; never on devices
 * older than 9.0, nor is `early`, by which the kernel that adds parts is started so. */
cudaError_t sm80_packed_launch(cudaStream_t stream, const struct sm80_packed_config *config,
                               const struct sm80_packed_plan *plan, const struct tiles_product *product, bool dependent,
                               bool early);

C_LINKAGE_END
