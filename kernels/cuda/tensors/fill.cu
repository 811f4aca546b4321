// See fill.h.
#include "../device/number.cuh"
#include "../launch/launch_kernel.cuh"
#include "fill.h"

namespace {

constexpr int threads = 256;

__device__ float uniform(uint32_t seed, uint64_t row, uint64_t k) {
  uint64_t bits = (row << 32 | k) * 0x9e3779b97f4a7c15ull + seed;
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9ull;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111ebull;
  return static_cast<float>(static_cast<int32_t>(bits >> 32)) * 0x1p-31f;
}

__global__ void __launch_bounds__(threads) make(const tensors_fill f) {
  const int64_t across = f.turned ? f.rows : f.k, lines = f.turned ? f.k : f.rows;
  const int64_t place = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (place >= across)
    return;
  for (int64_t line = blockIdx.y; line < lines; line += gridDim.y) {
    const int64_t row = f.turned ? place : line, k = f.turned ? line : place;
    const float value =
        uniform(f.seed, static_cast<uint64_t>(f.kinds > 0 ? row % f.kinds : row), static_cast<uint64_t>(k));
    number_store_as(static_cast<uint8_t *>(f.to) + line * f.stride, place, f.type, value);
  }
}

} // namespace

extern "C" cudaError_t tensors_fill_launch(cudaStream_t stream, const struct tensors_fill *fill) {
  const int64_t across = fill->turned ? fill->rows : fill->k, lines = fill->turned ? fill->k : fill->rows;
  launch_shape shape;
  shape.grid = dim3(static_cast<unsigned>((across + threads - 1) / threads),
                    static_cast<unsigned>(lines < 16384 ? lines : 16384));
  shape.block = dim3(threads);
  return launch_kernel(stream, shape, make, *fill);
}
