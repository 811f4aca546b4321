// Launcher of int2_few.cuh.
#include "int2_few.cuh"
#include "launch_kernel.cuh"
#include "load.h"

namespace {

using kernel = void (*)(int2_few::work);

template <typename X> kernel kernel_of(int columns, bool halves) {
  static_assert(INT2_FEW_COLUMNS_HALVES == 8, "all kernels of one eight");
  if (columns > 8)
    return int2_few::run<X, 2, false>;
  return halves ? int2_few::run<X, 1, true> : int2_few::run<X, 1, false>;
}

} // namespace

extern "C" cudaError_t int2_few_launch(cudaStream_t stream, const struct int2_few_way ways[INT2_FEW_WAYS],
                                       const struct int2_few_product *product, bool dependent) {
  const int64_t columns = product->x_type == GEMM_F32 ? 2 * product->m : product->m;
  const int2_few_way *way = ways;
  while (columns > way->config.columns)
    way++;
  const int2_few_config *config = &way->config;
  const int2_few_plan *plan = &way->plan;
  const int2_few::work work = {*product, *plan};
  const bool halves = plan->cut.halves % 2 != 0;
  const kernel run = product->x_type == GEMM_F32   ? kernel_of<float>(config->columns, halves)
                     : product->x_type == GEMM_F16 ? kernel_of<__half>(config->columns, halves)
                                                   : kernel_of<__nv_bfloat16>(config->columns, halves);
  launch_shape shape;
  shape.grid = dim3(plan->cut.clusters, static_cast<unsigned>(config->split_k));
  shape.block = dim3(int2_few::all_threads);
  shape.shared_bytes = static_cast<size_t>(plan->shared_bytes);
  if (config->split_k > 1)
    shape.cluster = dim3(1, static_cast<unsigned>(config->split_k));
  shape.dependent = dependent;
  return launch_kernel(stream, shape, run, work);
}

extern "C" const void *kernel_of_int2_few(void) {
  return reinterpret_cast<const void *>(&int2_few::run<float, 1, false>);
}
