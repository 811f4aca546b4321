/* Launcher of int4_zeros/kernel.cuh. */
#pragma once

#include "../../../linkage.h"
#include "product.h"

#include <driver_types.h>

C_LINKAGE_BEGIN

/* Queues sums of x, then y. */
cudaError_t int4_zeros_launch(cudaStream_t stream, const struct int4_zeros_product *product);

C_LINKAGE_END
