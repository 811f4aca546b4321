// A kernel of int2_many or of int4_many, and how it is launched.
#pragma once

#include "../../../launch/launch_kernel.cuh"
#include "share.cuh"

namespace int2_many {

struct instance {
  void (*kernel)(work);
  size_t shared_bytes;
  int threads;
};

inline cudaError_t launch(cudaStream_t stream, const instance &run, const int2_many_config &config,
                          const int2_many_plan &plan, const tiles_product &product, const CUtensorMap &x,
                          bool dependent, bool together) {
  work work = {};
  work.product = product;
  work.plan = plan;
  work.split_k = config.split_k;
  work.group = config.group;
  work.x = x;
  launch_shape shape;
  shape.grid = dim3(static_cast<unsigned>(plan.blocks));
  shape.block = dim3(static_cast<unsigned>(run.threads));
  shape.shared_bytes = run.shared_bytes;
  shape.dependent = dependent;
  shape.cooperative = together && config.split_k > 1;
  return launch_kernel(stream, shape, run.kernel, work);
}

} // namespace int2_many
