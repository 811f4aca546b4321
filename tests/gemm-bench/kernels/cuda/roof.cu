#include "roof.h"

namespace {

constexpr int threads = 256, loads = 8; // under way in a thread

__global__ void __launch_bounds__(threads) read_all(const uint4 *from, uint64_t count, uint4 *sink) {
  const uint64_t first = blockIdx.x * static_cast<uint64_t>(threads * loads) + threadIdx.x;
  uint4 value[loads] = {}, sum = {};
#pragma unroll
  for (int i = 0; i < loads; i++) {
    if (first + i * threads < count)
      value[i] = __ldcs(from + first + i * threads);
  }
#pragma unroll
  for (int i = 0; i < loads; i++) {
    sum.x ^= value[i].x ^ value[i].z;
    sum.y += value[i].y ^ value[i].w;
  }
  if (sum.x == 0x9e3779b9u && sum.y == 0x7f4a7c15u) // never, which the compiler does not know
    *sink = sum;
}

__global__ void __launch_bounds__(threads) halve(const uint4 *from, uint64_t count, uint4 *to) {
  const uint64_t i = blockIdx.x * static_cast<uint64_t>(threads) + threadIdx.x;
  if (i >= count)
    return;
  const uint4 a = __ldg(from + 2 * i), b = __ldg(from + 2 * i + 1);
  to[i] = make_uint4(a.x ^ a.y, a.z ^ a.w, b.x ^ b.y, b.z ^ b.w);
}

unsigned blocks_for(uint64_t items, uint64_t each) {
  return static_cast<unsigned>((items + each - 1) / each);
}

} // namespace

extern "C" cudaError_t roof_read_launch(cudaStream_t stream, const void *from, uint64_t bytes, void *sink) {
  const uint64_t count = bytes / 16;
  read_all<<<blocks_for(count, threads * loads), threads, 0, stream>>>(static_cast<const uint4 *>(from), count,
                                                                       static_cast<uint4 *>(sink));
  return cudaGetLastError();
}

extern "C" cudaError_t roof_halve_launch(cudaStream_t stream, const void *from, uint64_t bytes, void *to) {
  const uint64_t count = bytes / 16;
  halve<<<blocks_for(count, threads), threads, 0, stream>>>(static_cast<const uint4 *>(from), count,
                                                            static_cast<uint4 *>(to));
  return cudaGetLastError();
}
