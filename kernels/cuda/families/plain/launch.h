/* Launcher of plain/kernel.cuh. */
#pragma once

#include "../../linkage.h"
#include "product.h"

#include <driver_types.h>

C_LINKAGE_BEGIN

/* Blocks that compute sums [m, n] of a slice of K. */
int64_t plain_blocks(int64_t m, int64_t n);
cudaError_t launch_plain(cudaStream_t stream, const struct plain_product *product);

C_LINKAGE_END
