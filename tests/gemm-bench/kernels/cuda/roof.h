/* What the device's memory gives to plain kernels, in the same run. */
#ifndef BENCH_ROOF_H
#define BENCH_ROOF_H

#include "proto/status.h"

#include <driver_types.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Queues a read of `bytes`, a multiple of 16, from `from` on. `sink`: 16 bytes. */
cudaError_t roof_read_launch(cudaStream_t stream, const void *from, uint64_t bytes, void *sink);
/* Queues a kernel that reads 2 * `bytes` and writes `bytes`, a multiple of 16. */
cudaError_t roof_halve_launch(cudaStream_t stream, const void *from, uint64_t bytes, void *to);

#ifdef __cplusplus
}
#endif
#endif
