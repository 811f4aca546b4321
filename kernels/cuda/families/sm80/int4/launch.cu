// Launcher of sm80/int4/kernel.cuh.
#include "../../../launch/launch_kernel.cuh"
#include "kernel.cuh"
#include "launch.h"

namespace {

using kernel = void (*)(sm80_int4::work);

template <sm80_int4::kind kKind> kernel kernel_of(gemm_type x_type) {
  return x_type == GEMM_F16    ? sm80_int4::run<kKind, __half>
         : x_type == GEMM_BF16 ? sm80_int4::run<kKind, __nv_bfloat16>
                               : sm80_int4::run<kKind, float>;
}

kernel kernel_of(gemm_format format, gemm_type x_type) {
  switch (format) {
  case GEMM_FORMAT_INT4:
    return kernel_of<sm80_int4::kind::integers>(x_type);
  case GEMM_FORMAT_MXFP4:
    return kernel_of<sm80_int4::kind::mxfp4>(x_type);
  default:
    return kernel_of<sm80_int4::kind::nvfp4>(x_type);
  }
}

} // namespace

extern "C" cudaError_t sm80_int4_launch(cudaStream_t stream, enum gemm_format format, const struct sm80_int4_plan *plan,
                                        const struct sm80_int4_product *product, bool dependent, bool early) {
  sm80_int4::work work = {*product, *plan, 1.0f};
  if (format != GEMM_FORMAT_INT4)
    work.unit = sm80_int4::unit_of(format == GEMM_FORMAT_NVFP4, product->x_type == GEMM_F16);
  launch_shape shape;
  shape.grid = dim3(static_cast<unsigned>(plan->row_blocks), static_cast<unsigned>(plan->split_k));
  shape.block = dim3(32 * SM80_INT4_WARPS);
  shape.shared_bytes = static_cast<size_t>(plan->shared_bytes);
  shape.dependent = dependent;
  const cudaError_t result = launch_kernel(stream, shape, kernel_of(format, product->x_type), work);
  if (result != cudaSuccess || plan->split_k == 1)
    return result;
  launch_shape adding;
  const int64_t sums = product->m * plan->row_blocks * INT4_BLOCK_ROWS;
  adding.grid = dim3(static_cast<unsigned>((sums + sm80_int4::adders - 1) / sm80_int4::adders));
  adding.block = dim3(sm80_int4::adders);
  adding.dependent = early;
  return launch_kernel(stream, adding, sm80_int4::add_parts, work);
}

extern "C" const void *kernel_of_sm80_int4(void) {
  return reinterpret_cast<const void *>(&sm80_int4::add_parts);
}
