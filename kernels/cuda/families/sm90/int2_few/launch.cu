// Launcher of int2_few/kernel.cuh.
#include "../../../launch/launch_kernel.cuh"
#include "kernel.cuh"
#include "launch.h"

namespace {

using kernel = void (*)(int2_few::work);

template <typename X, bool kSplits> kernel kernel_of(bool halves) {
  return halves ? int2_few::run<X, kSplits, true> : int2_few::run<X, kSplits, false>;
}

template <typename X> kernel kernel_of(bool splits, bool halves) {
  return splits ? kernel_of<X, true>(halves) : kernel_of<X, false>(halves);
}

} // namespace

extern "C" cudaError_t int2_few_launch(cudaStream_t stream, const struct int2_few_way ways[INT2_FEW_WAYS],
                                       const struct tiles_product *product, bool dependent) {
  const uint32_t m = static_cast<uint32_t>(product->m);
  const bool splits = int2_few_splits(product->x_type, product->y_type);
  const int64_t columns = splits ? 2 * product->m : product->m;
  const int2_few_way *way = ways;
  while (columns > way->config.columns)
    way++;
  const int2_few_config *config = &way->config;
  const int2_few_plan *plan = &way->plan;
  const int2_few::work work = {*product, *plan, (0x10000u + m - 1) / m};
  const bool halves = plan->cut.halves % 2 != 0;
  const kernel run = product->x_type == GEMM_F32   ? kernel_of<float, true>(halves)
                     : product->x_type == GEMM_F16 ? kernel_of<__half>(splits, halves)
                                                   : kernel_of<__nv_bfloat16>(splits, halves);
  launch_shape shape;
  shape.grid = dim3(plan->cut.clusters, static_cast<unsigned>(config->split_k));
  shape.block = dim3(int2_few::all_threads);
  shape.shared_bytes = static_cast<size_t>(plan->shared_bytes);
  if (config->split_k > 1)
    shape.cluster = dim3(1, static_cast<unsigned>(config->split_k));
  shape.dependent = dependent;
  return launch_kernel(stream, shape, run, work);
}

static const load_early early(int2_few::run<float, true, false>);
