/* Launcher of the kernel that hopper/config.h describes. */
#pragma once

#include "../../../linkage.h"
#include "config.h"
#include "product.h"

#include <driver_types.h>

C_LINKAGE_BEGIN

/* Queues the product. */
cudaError_t hopper_launch(cudaStream_t stream, const struct hopper_config *config, const struct hopper_product *product,
                          const struct hopper_start *start);

C_LINKAGE_END
