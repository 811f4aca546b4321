// Launcher of sm80/int2/kernel.cuh.
#include "../../../launch/launch_kernel.cuh"
#include "kernel.cuh"
#include "launch.h"

namespace {

using kernel = void (*)(sm80_int2::work);

template <typename X> kernel kernel_of(int columns, int units) {
  switch (columns) {
  case 8:
    return units == 2 ? sm80_int2::run<X, 1, 2> : sm80_int2::run<X, 1, 4>;
  case 16:
    return sm80_int2::run<X, 2, 2>;
  case 32:
    return sm80_int2::run<X, 4, 2>;
  default:
    return units == 1 ? sm80_int2::run<X, 8, 1> : sm80_int2::run<X, 8, 2>;
  }
}

template <> kernel kernel_of<float>(int columns, int) {
  return columns == 8 ? sm80_int2::run<float, 1, 2> : sm80_int2::run<float, 2, 2>;
}

kernel kernel_of(enum gemm_type x_type, int columns, int units) {
  switch (x_type) {
  case GEMM_F16:
    return kernel_of<__half>(columns, units);
  case GEMM_BF16:
    return kernel_of<__nv_bfloat16>(columns, units);
  case GEMM_F32:
    return kernel_of<float>(columns, units);
  default:
    return kernel_of<int8_t>(columns, units);
  }
}

} // namespace

extern "C" cudaError_t sm80_int2_launch(cudaStream_t stream, const struct sm80_int2_config *config,
                                        const struct sm80_int2_plan *plan, const struct sm80_int2_product *product,
                                        bool dependent, bool early) {
  sm80_int2::work work = {};
  work.product = *product;
  work.plan = *plan;
  work.n_warps = config->n_warps;
  work.k_warps = config->k_warps;
  work.groups = static_cast<int>(product->k / GEMM_GROUP);
  work.units = static_cast<int>((product->n + 63) / 64 * 4);
  work.dependent = dependent;
  launch_shape shape;
  shape.grid = dim3(static_cast<unsigned>(config->blocks));
  shape.block = dim3(static_cast<unsigned>(config->n_warps * config->k_warps * 32));
  shape.shared_bytes = static_cast<size_t>(plan->shared_bytes);
  shape.dependent = dependent;
  cudaError_t result = launch_kernel(stream, shape, kernel_of(product->x_type, plan->columns, config->units), work);
  if (result != cudaSuccess || plan->shares.parts == 0)
    return result;
  launch_shape adding;
  const int64_t threads = product->m * (plan->rows / 4);
  adding.grid = dim3(static_cast<unsigned>((threads + sm80_int2::adders - 1) / sm80_int2::adders),
                     static_cast<unsigned>(plan->row_blocks));
  adding.block = dim3(sm80_int2::adders);
  adding.dependent = early;
  return launch_kernel(stream, adding, sm80_int2::add_parts, work);
}

extern "C" const void *kernel_of_sm80_int2(void) {
  return reinterpret_cast<const void *>(&sm80_int2::add_parts);
}
