// Launcher of int2a8/kernel.cuh.
#include "../../../launch/launch_kernel.cuh"
#include "kernel.cuh"
#include "launch.h"

namespace {

using kernel = void (*)(int2a8::work);

kernel kernel_of(int eights) {
  return eights == 1 ? int2a8::run<1> : eights == 2 ? int2a8::run<2> : int2a8::run<4>;
}

} // namespace

extern "C" cudaError_t int2a8_launch(cudaStream_t stream, const struct int2a8_way *way,
                                     const struct tiles_product *product, bool dependent) {
  const int2a8_config *config = &way->config;
  const int2a8_plan *plan = &way->plan;
  const int2a8::work work = {*product, *plan};
  const kernel run = kernel_of(config->eights);
  launch_shape shape;
  shape.grid = dim3(plan->cut.clusters, static_cast<unsigned>(config->split_k));
  shape.block = dim3(int2a8::threads + 32);
  shape.shared_bytes = static_cast<size_t>(plan->shared_bytes);
  if (config->split_k > 1)
    shape.cluster = dim3(1, static_cast<unsigned>(config->split_k));
  shape.dependent = dependent;
  return launch_kernel(stream, shape, run, work);
}

static const load_early early(int2a8::run<1>);
