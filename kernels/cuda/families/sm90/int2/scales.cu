// What products with pairs of x want to know of a weight's scales (int2/layout.h).
#include "../../../runtime/load.cuh"
#include "layout.h"
#include "scales.h"

namespace {

constexpr int threads = 256;
constexpr int parts = 2 * 2 * INT2_HALF_ROWS / 16; // of a tile's scales, 16 bytes each

// Whether f16 lacks twice any of the magnitudes: bit 15 of them says so.
__device__ inline uint32_t large(uint32_t two) {
  return ((two & 0x7fff7fff) + 0x08000800) & 0x80008000;
}

// *out is zero before.
__global__ void __launch_bounds__(threads) find_large(const uint8_t *tiles, uint64_t count, uint64_t *out) {
  const uint64_t step = static_cast<uint64_t>(gridDim.x) * threads;
  uint32_t found = 0;
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * threads + threadIdx.x; i < count * parts; i += step) {
    const uint64_t half = i / (parts / 2), part = i % (parts / 2);
    const uint4 eight = *reinterpret_cast<const uint4 *>(tiles + half * INT2_HALF_BYTES + INT2_HALF_SCALES + part * 16);
    found |= large(eight.x) | large(eight.y) | large(eight.z) | large(eight.w);
  }
  if (found != 0)
    *out = 1;
}

} // namespace

extern "C" cudaError_t launch_int2_large_scales(cudaStream_t stream, const void *tiles, uint64_t bytes, uint64_t *out) {
  const uint64_t count = bytes / INT2_TILE_BYTES, wanted = (count * parts + threads - 1) / threads;
  const unsigned grid = static_cast<unsigned>(wanted < 2048 ? wanted : 2048);
  cudaError_t result = cudaMemsetAsync(out, 0, sizeof *out, stream);
  if (result != cudaSuccess)
    return result;
  find_large<<<grid, threads, 0, stream>>>(static_cast<const uint8_t *>(tiles), count, out);
  return cudaGetLastError();
}

static const load_early early(find_large);
