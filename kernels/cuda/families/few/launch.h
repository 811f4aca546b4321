/* Launcher of the kernel that few/config.h describes. */
#pragma once

#include "../../linkage.h"
#include "../sm90/hopper/product.h"
#include "config.h"

#include <driver_types.h>

C_LINKAGE_BEGIN

/* Queues the product on a device of `sms` multiprocessors. `dependent`: W may be read before the kernel ahead in the
 * stream has ended. */
cudaError_t few_launch(cudaStream_t stream, const struct few_config *config, const struct hopper_product *product,
                       int sms, bool dependent);

C_LINKAGE_END
