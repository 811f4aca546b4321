/* Launcher of checksum.cuh. */
#pragma once

#include "../linkage.h"

#include <driver_types.h>
#include <stdint.h>

C_LINKAGE_BEGIN

/* cudaSuccess where this build has code for the current device. */
cudaError_t launch_check(void);

/* Sum over `bytes`, a multiple of 8, of each 8-byte word mixed with its place; does not depend on the order. */
cudaError_t launch_checksum(cudaStream_t stream, const void *data, uint64_t bytes, uint64_t *out);

C_LINKAGE_END
