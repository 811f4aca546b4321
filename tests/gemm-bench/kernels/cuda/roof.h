/* What the device's memory gives to plain kernels, in the same run. */
#pragma once

#include "kernels/cuda/linkage.h"
#include "proto/status.h"

#include <driver_types.h>
#include <stdint.h>

C_LINKAGE_BEGIN

/* Queues a read of `bytes`, a multiple of 16, from `from` on. `sink`: 16 bytes. */
cudaError_t roof_read_launch(cudaStream_t stream, const void *from, uint64_t bytes, void *sink);
/* Queues a kernel that reads 2 * `bytes` and writes `bytes`, a multiple of 16. */
cudaError_t roof_halve_launch(cudaStream_t stream, const void *from, uint64_t bytes, void *to);

C_LINKAGE_END
