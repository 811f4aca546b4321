// Launcher and kernel of sum.h.
#include "../device/number.cuh"
#include "../device/ptx.cuh"
#include "../launch/launch_kernel.cuh"
#include "sum.h"

namespace {

constexpr int threads = 128, columns = 8;

// Eight columns a thread; routing weights and places of a row are the same for its block.
template <typename T> __global__ void __launch_bounds__(threads) sum_pairs(const __grid_constant__ sum_pass p) {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();
#endif
  const int64_t n = columns * (static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x), m = blockIdx.y;
  if (n >= p.n)
    return;
  const bool aligned = p.n % columns == 0 && p.v_stride % 16 == 0;
  float sum[columns] = {};
#pragma unroll 8
  for (int t = 0; t < p.top; t++) {
    const int place = p.place[m * p.top + t];
    const float by = p.routing ? p.routing[m * p.top + t] : 1.0f;
    float v[columns];
    if (place < 0)
      continue;
    number_load8(reinterpret_cast<const T *>(static_cast<const uint8_t *>(p.v) + place * p.v_stride), n, p.n, aligned,
                 v);
#pragma unroll
    for (int i = 0; i < columns; i++)
      sum[i] = fmaf(by, v[i], sum[i]);
  }
  T *const y = reinterpret_cast<T *>(static_cast<uint8_t *>(p.y) + m * p.y_stride);
#pragma unroll
  for (int i = 0; i < columns; i += 4) {
    const float four[4] = {sum[i], sum[i + 1], sum[i + 2], sum[i + 3]};
    number_store4(y, n + i, p.n, four);
  }
}

template <typename T> cudaError_t launch_as(cudaStream_t stream, const sum_pass &p) {
  launch_shape shape;
  shape.grid =
      dim3(static_cast<unsigned>((p.n + threads * columns - 1) / (threads * columns)), static_cast<unsigned>(p.m));
  shape.block = dim3(threads);
  shape.dependent = p.dependent;
  return launch_kernel(stream, shape, sum_pairs<T>, p);
}

} // namespace

extern "C" cudaError_t launch_sum(cudaStream_t stream, const struct sum_pass *pass) {
  if (pass->type == GEMM_F32)
    return launch_as<float>(stream, *pass);
  return pass->type == GEMM_F16 ? launch_as<__half>(stream, *pass) : launch_as<__nv_bfloat16>(stream, *pass);
}

static const load_early early(sum_pairs<float>);
