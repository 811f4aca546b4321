// Launchers of grouped_int2/make.cuh and kernel.cuh.
#include "../../../launch/launch_kernel.cuh"
#include "kernel.cuh"
#include "launch.h"
#include "make.cuh"

namespace {

using kernel = void (*)(grouped_int2::work);

kernel maker_of(const grouped_int2_product &p) {
  if (p.x_type == GEMM_F32)
    return grouped_int2::make<float, true>;
  if (p.x_type == GEMM_F16)
    return p.splits ? grouped_int2::make<__half, true> : grouped_int2::make<__half, false>;
  return p.splits ? grouped_int2::make<__nv_bfloat16, true> : grouped_int2::make<__nv_bfloat16, false>;
}

int groups_of(int64_t k) {
  return static_cast<int>((k + GEMM_GROUP - 1) / GEMM_GROUP);
}

} // namespace

extern "C" uint64_t grouped_int2_made_bytes(int64_t rows, bool splits, int64_t k) {
  const int groups = groups_of(k);
  return static_cast<uint64_t>(rows) * (grouped_int2::made_row(groups, splits) + (groups + 3) / 4 * 4 * sizeof(float));
}

extern "C" cudaError_t grouped_int2_launch(cudaStream_t stream, const struct grouped_int2_plan *plan,
                                           const struct grouped_int2_product *product, int sms, bool dependent) {
  grouped_int2::work work = {};
  work.product = *product;
  work.plan = *plan;
  work.row_blocks = static_cast<int>(product->n / INT2_BLOCK_ROWS);
  const int64_t rows = product->last_row - product->first_row;
  constexpr int at_once = grouped_int2::making_warps * grouped_int2::groups_at_once;
  launch_shape shape;
  shape.dependent = dependent;
  shape.grid = dim3(static_cast<unsigned>((plan->groups + at_once - 1) / at_once),
                    static_cast<unsigned>(rows + GROUPED_INT2_COLUMNS < product->pairs - product->first_row
                                              ? rows + GROUPED_INT2_COLUMNS
                                              : product->pairs - product->first_row));
  shape.block = dim3(32 * grouped_int2::making_warps);
  const cudaError_t result = launch_kernel(stream, shape, maker_of(*product), work);
  if (result != cudaSuccess)
    return result;
  shape.grid = dim3(static_cast<unsigned>(sms));
  shape.block = dim3(grouped_int2::threads);
  shape.shared_bytes = static_cast<size_t>(plan->shared_bytes);
  return launch_kernel(stream, shape, product->splits ? grouped_int2::multiply<true> : grouped_int2::multiply<false>,
                       work);
}

extern "C" const void *kernel_of_grouped_int2(void) {
  return reinterpret_cast<const void *>(&grouped_int2::multiply<false>);
}
