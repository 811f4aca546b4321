// Launcher of fp8_many/kernel.cuh.
#include "../../../launch/launch_kernel.cuh"
#include "kernel.cuh"
#include "launch.h"

namespace {

using kernel = void (*)(fp8_many::work);

template <typename Y, int kRows> kernel kernel_as(size_t *bytes) {
  static_assert(sizeof(fp8_many::shared<kRows>) + 1024 <= 227 * 1024, "a block fits");
  *bytes = 1024 + sizeof(fp8_many::shared<kRows>);
  return fp8_many::run<Y, kRows>;
}

kernel kernel_of(int rows, gemm_type y_type, size_t *bytes) {
  if (y_type == GEMM_F32)
    return kernel_as<float, FP8_MANY_ROWS_LEAST>(bytes);
  if (y_type == GEMM_F16)
    return kernel_as<__half, FP8_MANY_ROWS_LEAST>(bytes);
  return rows == FP8_MANY_ROWS_MOST ? kernel_as<__nv_bfloat16, FP8_MANY_ROWS_MOST>(bytes)
                                    : kernel_as<__nv_bfloat16, FP8_MANY_ROWS_LEAST>(bytes);
}

} // namespace

extern "C" cudaError_t fp8_many_launch(cudaStream_t stream, const struct fp8_many_config *config,
                                       const struct fp8_many_plan *plan, const struct hopper_product *product,
                                       const CUtensorMap *w, const CUtensorMap *x, bool dependent) {
  const unsigned split = static_cast<unsigned>(plan->split_k), blocks = static_cast<unsigned>(plan->blocks);
  fp8_many::work work = {};
  work.product = *product;
  work.plan = *plan;
  work.dependent = dependent;
  work.w = *w;
  work.x = *x;
  launch_shape shape;
  const kernel run = kernel_of(config->rows, product->y_type, &shape.shared_bytes);
  shape.grid = split > 1 ? dim3(split, blocks / split) : dim3(blocks);
  shape.block = dim3(fp8_many::threads);
  shape.dependent = dependent;
  if (split > 1)
    shape.cluster = dim3(split, 1, 1);
  return launch_kernel(stream, shape, run, work);
}

extern "C" const void *kernel_of_fp8_many(void) {
  return reinterpret_cast<const void *>(&fp8_many::run<float, FP8_MANY_ROWS_LEAST>);
}
