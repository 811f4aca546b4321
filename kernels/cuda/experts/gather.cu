// Launchers of gather.cuh.
#include "../launch/launch_kernel.cuh"
#include "gather.cuh"
#include "gather.h"

namespace {

using experts::gather;
using kernel = void (*)(gather_pass);

template <gather_to kTo, bool kRoutes> kernel kernel_by(gemm_type x_type) {
  if (x_type == GEMM_F32)
    return gather<float, kTo, kRoutes>;
  if constexpr (kTo == GATHER_AS_IT_IS) // types of 16 bits are one
    return gather<__half, kTo, kRoutes>;
  else
    return x_type == GEMM_F16 ? gather<__half, kTo, kRoutes> : gather<__nv_bfloat16, kTo, kRoutes>;
}

template <bool kRoutes> kernel kernel_of(const gather_pass &p) {
  switch (p.to) {
  case GATHER_INT8:
    return kernel_by<GATHER_INT8, kRoutes>(p.x_type);
  case GATHER_E4M3:
    return kernel_by<GATHER_E4M3, kRoutes>(p.x_type);
  case GATHER_E4M3_BLOCKS:
    return kernel_by<GATHER_E4M3_BLOCKS, kRoutes>(p.x_type);
  default:
    return kernel_by<GATHER_AS_IT_IS, kRoutes>(p.x_type);
  }
}

} // namespace

extern "C" cudaError_t launch_gather(cudaStream_t stream, const struct gather_pass *pass) {
  const bool at_once = pass->pairs <= GATHER_AT_ONCE;
  launch_shape shape;
  shape.block = dim3(experts::threads);
  shape.dependent = pass->dependent;
  if (!at_once) {
    const int64_t ranges = (pass->pairs + experts::range_most - 1) / experts::range_most;
    shape.grid = dim3(static_cast<unsigned>(ranges + 1));
    const cudaError_t result = launch_kernel(stream, shape, experts::route, *pass);
    if (result != cudaSuccess)
      return result;
  }
  shape.block = dim3(at_once ? experts::row_threads<true> : experts::row_threads<false>);
  shape.grid = dim3(static_cast<unsigned>(pass->pairs / experts::pairs_of_block(*pass) + (at_once ? 1 : 0)));
  return launch_kernel(stream, shape, at_once ? kernel_of<true>(*pass) : kernel_of<false>(*pass), *pass);
}

static const load_early early(experts::route);
