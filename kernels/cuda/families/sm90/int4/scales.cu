// What int4_many wants to know of a weight's scales (int4/layout.h).
#include "../../../runtime/load.cuh"
#include "scales.h"

#include <cstdint>

namespace {

constexpr int threads = 256;

__device__ inline bool number_fits(uint32_t bits, gemm_type type) {
  const uint32_t magnitude = bits & 0x7fff;
  if (type == GEMM_F16)
    return magnitude <= 0x6c00; // 2^12
  return magnitude == 0 || (magnitude >= (127 - 17) << 7 && magnitude <= (127 + 12) << 7);
}

// Byte `at` of a half's scales of MXFP4. What is padded has 0, and codes of zeros.
__device__ inline bool power_fits(const uint8_t *half, uint32_t at) {
  const uint32_t power = half[INT4_HALF_SCALES + at];
  if (power > 0)
    return power >= 127 - 23 && power <= 127 + 1;
  const uint32_t u = at / 64, g = at % 64 / 8, r = at % 8 / 4, j = at % 4, mask = r == 0 ? 0x01c701c7 : 0x0e380e38;
  const uint32_t *lanes = reinterpret_cast<const uint32_t *>(half + (2 * u + j / 2) * INT4_UNIT_BYTES) + 16 * g;
  uint32_t codes = 0;
  for (uint32_t i = 0; i < 8; i++)
    codes |= lanes[i / 2 * 4 + j % 2 * 2 + i % 2] & mask;
  return codes == 0;
}

// *out is zero before.
__global__ void __launch_bounds__(threads)
    find(const uint8_t *tiles, uint64_t halves, int4_form form, gemm_type type, uint64_t *out) {
  const uint64_t each = INT4_HALF_ROWS * form.groups, step = static_cast<uint64_t>(gridDim.x) * threads;
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * threads + threadIdx.x; i < halves * each; i += step) {
    const uint8_t *half = tiles + i / each * form.half_bytes;
    const uint32_t at = static_cast<uint32_t>(i % each);
    if (!(form.e2m1 ? power_fits(half, at)
                    : number_fits(reinterpret_cast<const uint16_t *>(half + INT4_HALF_SCALES)[at], type)))
      *out = 1;
  }
}

} // namespace

extern "C" cudaError_t launch_int4_scales(cudaStream_t stream, const void *tiles, uint64_t bytes,
                                          const struct int4_form *form, enum gemm_type scale_type, uint64_t *out) {
  const uint64_t halves = bytes / form->half_bytes, wanted = (halves * 128 + threads - 1) / threads;
  const unsigned grid = static_cast<unsigned>(wanted < 2048 ? wanted : 2048);
  cudaError_t result = cudaMemsetAsync(out, 0, sizeof *out, stream);
  if (result != cudaSuccess)
    return result;
  find<<<grid, threads, 0, stream>>>(static_cast<const uint8_t *>(tiles), halves, *form, scale_type, out);
  return cudaGetLastError();
}

static const load_early early(find);
