/* Launcher of sm80/rows/kernel.cuh. */
#pragma once

#include "../../../linkage.h"
#include "../../sm90/hopper/product.h"
#include "config.h"

#include <driver_types.h>
#include <stdbool.h>

C_LINKAGE_BEGIN

/* Queues the product; `parts`: as many bytes as sm80_rows_parts_bytes says. `dependent`: it may be started before the
 * kernel ahead in the stream has ended; never on devices older than 9.0, nor is `early`, by which the kernel that adds
 * parts is started so. */
cudaError_t sm80_rows_launch(cudaStream_t stream, const struct sm80_rows_config *config,
                             const struct sm80_rows_plan *plan, const struct hopper_product *product, void *parts,
                             bool dependent, bool early);

C_LINKAGE_END
