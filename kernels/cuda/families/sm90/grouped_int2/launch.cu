// Launcher of grouped_int2/kernel.cuh.
#include "../../../launch/launch_kernel.cuh"
#include "../int2_few/config.h"
#include "kernel.cuh"
#include "launch.h"

namespace {

using kernel = void (*)(grouped_int2::work);

kernel kernel_of(const tiles_product &p) {
  const bool splits = int2_few_splits(p.x_type, p.y_type);
  if (p.x_type == GEMM_F32)
    return grouped_int2::multiply<float, true>;
  if (p.x_type == GEMM_F16)
    return splits ? grouped_int2::multiply<__half, true> : grouped_int2::multiply<__half, false>;
  return splits ? grouped_int2::multiply<__nv_bfloat16, true> : grouped_int2::multiply<__nv_bfloat16, false>;
}

} // namespace

extern "C" cudaError_t grouped_int2_launch(cudaStream_t stream, const struct grouped_int2_plan *plan,
                                           const struct tiles_product *product, int sms, bool dependent) {
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

static const load_early early(grouped_int2::multiply<__nv_bfloat16, false>);
