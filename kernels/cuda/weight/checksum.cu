// Launcher of checksum.cuh, and the question whether this build has code for the device.
#include "../runtime/load.cuh"
#include "checksum.cuh"
#include "checksum.h"

extern "C" cudaError_t launch_check(void) {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, checksum_sum);
}

extern "C" cudaError_t launch_checksum(cudaStream_t stream, const void *data, uint64_t bytes, uint64_t *out) {
  const uint64_t count = bytes / 8, wanted = (count + checksum_threads - 1) / checksum_threads;
  const unsigned grid = static_cast<unsigned>(wanted < 2048 ? wanted : 2048);
  cudaError_t result = cudaMemsetAsync(out, 0, sizeof *out, stream);
  if (result != cudaSuccess)
    return result;
  checksum_sum<<<grid, checksum_threads, 0, stream>>>(static_cast<const uint64_t *>(data), count,
                                                      reinterpret_cast<unsigned long long *>(out));
  return cudaGetLastError();
}

static const load_early early(checksum_sum);
