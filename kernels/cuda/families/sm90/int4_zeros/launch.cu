// Launcher of int4_zeros/kernel.cuh.
#include "../../../launch/launch_kernel.cuh"
#include "kernel.cuh"
#include "launch.h"

template <int kRows> static cudaError_t finish(cudaStream_t stream, const int4_zeros_product &p) {
  launch_shape shape;
  shape.grid = dim3(static_cast<unsigned>((p.n + int4_zeros::columns - 1) / int4_zeros::columns),
                    static_cast<unsigned>((p.m + kRows - 1) / kRows));
  shape.block = dim3(int4_zeros::threads);
  return launch_kernel(stream, shape, int4_zeros::finish<kRows>, p);
}

extern "C" cudaError_t int4_zeros_launch(cudaStream_t stream, const struct int4_zeros_product *product) {
  launch_shape shape;
  shape.grid = dim3(static_cast<unsigned>((product->m * product->groups + int4_zeros::warps - 1) / int4_zeros::warps));
  shape.block = dim3(int4_zeros::threads);
  const cudaError_t result = launch_kernel(stream, shape, int4_zeros::sum_x, *product);
  if (result != cudaSuccess)
    return result;
  return product->m == 1   ? finish<1>(stream, *product)
         : product->m <= 8 ? finish<4>(stream, *product)
                           : finish<16>(stream, *product);
}

static const load_early early(int4_zeros::sum_x);
