// A typed kernel and its arguments as launch_kernel.h wants them.
#pragma once

#include "../runtime/load.cuh"
#include "launch_kernel.h"

#include <cuda_runtime.h>
#include <tuple>

struct launch_shape {
  dim3 grid = dim3(1), block = dim3(1);
  size_t shared_bytes = 0;
  dim3 cluster = dim3(0, 0, 0); // of blocks; zeros: none
  bool dependent = false;       // may start before the kernel ahead has ended
  bool cooperative = false;     // its blocks wait for each other
};

// Arguments are converted as by a call of the kernel.
template <typename... Parameters, typename... Arguments>
cudaError_t launch_kernel(cudaStream_t stream, const launch_shape &shape, void (*kernel)(Parameters...),
                          const Arguments &...arguments) {
  static_assert(sizeof...(Parameters) <= LAUNCH_PARAMETERS, "a launch has room for them");
  static_assert((... + (sizeof(Parameters) + LAUNCH_ALIGN)) <= LAUNCH_BYTES, "and for their values");
  std::tuple<Parameters...> converted(arguments...);
  launch launch = {};
  launch.function = reinterpret_cast<const void *>(kernel);
  const dim3 sizes[3] = {shape.grid, shape.block, shape.cluster};
  uint32_t *const to[3] = {launch.grid, launch.block, launch.cluster};
  for (int i = 0; i < 3; i++) {
    to[i][0] = sizes[i].x;
    to[i][1] = sizes[i].y;
    to[i][2] = sizes[i].z;
  }
  launch.shared_bytes = static_cast<uint32_t>(shape.shared_bytes);
  launch.dependent = shape.dependent;
  launch.cooperative = shape.cooperative;
  launch.parameter_count = sizeof...(Parameters);
  const uint32_t bytes[] = {sizeof(Parameters)...};
  for (size_t i = 0; i < sizeof...(Parameters); i++)
    launch.parameter_bytes[i] = bytes[i];
  return std::apply(
      [&](auto &...each) {
        void *values[] = {const_cast<void *>(static_cast<const void *>(&each))...};
        return static_cast<cudaError_t>(launch_kernel(stream, &launch, values));
      },
      converted);
}
