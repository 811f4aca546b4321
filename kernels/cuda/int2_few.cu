// Launcher of int2_few.cuh.
#include "int2_few.cuh"

namespace {

using kernel = void (*)(int2_few::work);

template <typename X> kernel kernel_of(const int2_few_config &c) {
  if (c.columns == 8)
    return c.ahead == 2 ? int2_few::run<X, 8, 2> : int2_few::run<X, 8, 3>;
  return c.ahead == 2 ? int2_few::run<X, 16, 2> : int2_few::run<X, 16, 3>;
}

} // namespace

extern "C" cudaError_t int2_few_launch(cudaStream_t stream, const struct int2_few_way ways[INT2_FEW_WAYS],
                                       const struct int2_few_product *product, bool dependent) {
  const int64_t columns = product->x_type == GEMM_F32 ? 2 * product->m : product->m;
  const int2_few_way &way = ways[columns > ways[0].config.columns];
  const int2_few_config *config = &way.config;
  const int2_few_plan *plan = &way.plan;
  const int2_few::work work = {*product, *plan, config->blocks};
  const kernel run = product->x_type == GEMM_F32   ? kernel_of<float>(*config)
                     : product->x_type == GEMM_F16 ? kernel_of<__half>(*config)
                                                   : kernel_of<__nv_bfloat16>(*config);
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
  launch.blockDim = dim3(int2_few::threads);
  launch.dynamicSmemBytes = static_cast<size_t>(plan->shared_bytes);
  launch.stream = stream;
  launch.attrs = attributes;
  launch.numAttrs = count;
  return cudaLaunchKernelEx(&launch, run, work);
}
