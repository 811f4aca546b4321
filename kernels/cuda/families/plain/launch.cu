// Launcher of plain/kernel.cuh.
#include "../../launch/launch_kernel.cuh"
#include "kernel.cuh"
#include "launch.h"

extern "C" cudaError_t launch_plain(cudaStream_t stream, const struct plain_product *product) {
  launch_shape shape;
  shape.grid = dim3(static_cast<unsigned>((product->n + plain_tile - 1) / plain_tile),
                    static_cast<unsigned>((product->m + plain_tile - 1) / plain_tile));
  shape.block = dim3(plain_side * plain_side);
  if (product->format == GEMM_FORMAT_INT8)
    return launch_kernel(stream, shape, plain_sums<int8_t, int>, *product);
  if (product->format == GEMM_FORMAT_FP8)
    return launch_kernel(stream, shape, plain_sums<__nv_fp8_e4m3, float>, *product);
  if (product->format == GEMM_FORMAT_F16)
    return launch_kernel(stream, shape, plain_sums<__half, float>, *product);
  return launch_kernel(stream, shape, plain_sums<__nv_bfloat16, float>, *product);
}

extern "C" const void *kernel_of_plain(void) {
  return reinterpret_cast<const void *>(&plain_sums<int8_t, int>);
}
