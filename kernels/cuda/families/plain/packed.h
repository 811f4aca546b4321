/* Launcher of plain/packed_kernel.cuh. */
#pragma once

#include "../../linkage.h"
#include "product.h"

#include <driver_types.h>

C_LINKAGE_BEGIN

/* Blocks that compute y [m, n] of a slice of K. */
int64_t packed_blocks(int64_t m, int64_t n);
cudaError_t launch_packed(cudaStream_t stream, const struct packed_product *product);

C_LINKAGE_END
