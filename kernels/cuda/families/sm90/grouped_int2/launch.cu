// Launcher of grouped_int2/kernel.cuh.
#include "../../../launch/launch_kernel.cuh"
#include "kernel.cuh"
#include "launch.h"

namespace {

using kernel = void (*)(grouped_int2::work);

kernel kernel_of(const grouped_int2_product &p) {
  if (p.x_type == GEMM_F32)
    return grouped_int2::multiply<float, true>;
  if (p.x_type == GEMM_F16)
    return p.splits ? grouped_int2::multiply<__half, true> : grouped_int2::multiply<__half, false>;
  return p.splits ? grouped_int2::multiply<__nv_bfloat16, true> : grouped_int2::multiply<__nv_bfloat16, false>;
}

} // namespace

extern "C" cudaError_t grouped_int2_launch(cudaStream_t stream, const struct grouped_int2_plan *plan,
                                           const struct grouped_int2_product *product, int sms, bool dependent) {
  grouped_int2::work work = {};
  work.product = *product;
  work.plan = *plan;
  work.row_blocks = static_cast<int>(product->n / INT2_BLOCK_ROWS);
  launch_shape shape;
  shape.dependent = dependent;
  shape.grid = dim3(static_cast<unsigned>(sms));
  shape.block = dim3(grouped_int2::threads);
  shape.shared_bytes = static_cast<size_t>(plan->shared_bytes);
  return launch_kernel(stream, shape, kernel_of(*product), work);
}

extern "C" const void *kernel_of_grouped_int2(void) {
  return reinterpret_cast<const void *>(&grouped_int2::multiply<__nv_bfloat16, false>);
}
