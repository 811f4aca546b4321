// Launcher of int4_few/kernel.cuh.
#include "../../../launch/launch_kernel.cuh"
#include "instances.cuh"
#include "launch.h"

extern "C" cudaError_t int4_few_launch(cudaStream_t stream, const struct int4_form *form,
                                       const struct int4_few_way *way, const struct tiles_product *product,
                                       bool dependent) {
  const int columns = way->config.columns;
  const int4_few::work work = {*product, way->plan};
  const int4_few::kernel run = product->x_type == GEMM_F16
                                   ? int4_few::kernel_f16(*form, columns)
                                   : int4_few::kernel_bf16(*form, columns, !product->large_scales);
  launch_shape shape;
  shape.grid = dim3(way->plan.clusters, static_cast<unsigned>(way->config.split_k));
  shape.block = dim3(int4_few::all_threads);
  shape.shared_bytes = static_cast<size_t>(way->plan.shared_bytes);
  if (way->config.split_k > 1)
    shape.cluster = dim3(1, static_cast<unsigned>(way->config.split_k));
  shape.dependent = dependent;
  return launch_kernel(stream, shape, run, work);
}

static const load_early early[] = {int4_few::kernel_f16(int4_form{}, 1), int4_few::kernel_bf16(int4_form{}, 1, true)};
