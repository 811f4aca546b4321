/* Launcher of the kernel that many/config.h describes. */
#pragma once

#include "../../../linkage.h"
#include "../hopper/product.h"
#include "config.h"

#include <cuda.h>
#include <driver_types.h>

C_LINKAGE_BEGIN

/* Queues the product on a device of `sms` multiprocessors. `w`, `x`: tensor maps of its operands, in boxes of
 * config->columns and MANY_ROWS rows. */
cudaError_t many_launch(cudaStream_t stream, const struct many_config *config, const struct hopper_product *product,
                        const CUtensorMap *w, const CUtensorMap *x, int sms);

C_LINKAGE_END
