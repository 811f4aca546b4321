// Launcher of int2a8.cuh.
#include "int2a8.cuh"

namespace {

using kernel = void (*)(int2a8::work);

kernel kernel_of(int eights) {
  return eights == 1 ? int2a8::run<1> : eights == 2 ? int2a8::run<2> : int2a8::run<4>;
}

} // namespace

extern "C" cudaError_t int2a8_launch(cudaStream_t stream, const struct int2a8_way *way,
                                     const struct int2a8_product *product, bool dependent) {
  const int2a8_config *config = &way->config;
  const int2a8_plan *plan = &way->plan;
  const int2a8::work work = {*product, *plan, config->blocks, __builtin_ctz(config->split_k)};
  const kernel run = kernel_of(config->eights);
  const cudaError_t result = cudaFuncSetAttribute(run, cudaFuncAttributeMaxDynamicSharedMemorySize, plan->shared_bytes);
  if (result != cudaSuccess)
    return result;
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (config->split_k > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim.x = 1;
    attributes[count].val.clusterDim.y = static_cast<unsigned>(config->split_k);
    attributes[count++].val.clusterDim.z = 1;
  }
  if (dependent) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  cudaLaunchConfig_t launch = {};
  launch.gridDim = dim3(static_cast<unsigned>(plan->clusters), static_cast<unsigned>(config->split_k));
  launch.blockDim = dim3(int2a8::threads);
  launch.dynamicSmemBytes = static_cast<size_t>(plan->shared_bytes);
  launch.stream = stream;
  launch.attrs = attributes;
  launch.numAttrs = count;
  return cudaLaunchKernelEx(&launch, run, work);
}
