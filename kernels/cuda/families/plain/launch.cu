// Launcher of plain/kernel.cuh.
#include "../../device/fp8.cuh"
#include "../../launch/launch_kernel.cuh"
#include "kernel.cuh"
#include "launch.h"

__device__ inline float plain_load(__nv_fp8_e4m3 value) {
  return static_cast<float>(value);
}

template <typename T, typename Sum> static cudaError_t sums_of(cudaStream_t stream, const plain_product &p) {
  launch_shape shape;
  shape.grid = dim3(static_cast<unsigned>((p.n + plain_tile - 1) / plain_tile),
                    static_cast<unsigned>((p.m + plain_tile - 1) / plain_tile), static_cast<unsigned>(p.cut.slices));
  shape.block = dim3(plain_side * plain_side);
  const cudaError_t result = launch_kernel(stream, shape, plain_sums<T, Sum>, p);
  if (result != cudaSuccess || p.cut.slices == 1)
    return result;
  launch_shape join;
  join.grid = dim3(static_cast<unsigned>((p.m * p.n + plain_adders - 1) / plain_adders));
  join.block = dim3(plain_adders);
  return launch_kernel(stream, join, plain_join<Sum>, p);
}

extern "C" int64_t plain_blocks(int64_t m, int64_t n) {
  return (m + plain_tile - 1) / plain_tile * ((n + plain_tile - 1) / plain_tile);
}

extern "C" cudaError_t launch_plain(cudaStream_t stream, const struct plain_product *product) {
  if (product->format == GEMM_FORMAT_INT8)
    return sums_of<int8_t, int>(stream, *product);
  if (product->format == GEMM_FORMAT_FP8)
    return sums_of<__nv_fp8_e4m3, float>(stream, *product);
  if (product->format == GEMM_FORMAT_F16)
    return sums_of<__half, float>(stream, *product);
  return sums_of<__nv_bfloat16, float>(stream, *product);
}

static const load_early early(plain_sums<int8_t, int>);
