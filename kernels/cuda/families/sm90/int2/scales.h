/* What products with pairs of x want to know of a weight's scales. */
#pragma once

#include "../../../linkage.h"

#include <driver_types.h>
#include <stdint.h>

C_LINKAGE_BEGIN

/* Whether tiles of int2/layout.h, `bytes` of them, have a scale of 2^15 or more, twice which is no f16: 1 or 0. */
cudaError_t launch_int2_large_scales(cudaStream_t stream, const void *tiles, uint64_t bytes, uint64_t *out);

C_LINKAGE_END
