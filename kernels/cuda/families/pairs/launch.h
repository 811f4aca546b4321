/* Launcher of pairs/kernel.cuh. */
#pragma once

#include "../../linkage.h"
#include "product.h"

#include <driver_types.h>

C_LINKAGE_BEGIN

cudaError_t launch_pairs(cudaStream_t stream, const struct pairs_product *product);

C_LINKAGE_END
