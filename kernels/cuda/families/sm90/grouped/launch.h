/* Launcher of the kernel that grouped/config.h describes. */
#pragma once

#include "../../../linkage.h"
#include "../hopper/product.h"
#include "config.h"

#include <cuda.h>
#include <driver_types.h>

C_LINKAGE_BEGIN

/* Queues the product on a device of `sms` multiprocessors. `w`: a tensor map of all experts' rows in boxes of 64 *
 * config->groups; `x`: of the sorted rows in boxes of GROUPED_WIDTH, as far as config->columns goes. */
cudaError_t grouped_launch(cudaStream_t stream, const struct grouped_config *config,
                           const struct hopper_product *product, const CUtensorMap *w,
                           const CUtensorMap x[GROUPED_WIDTHS], int sms, bool dependent);

C_LINKAGE_END
