// Launcher of int2_many/kernel.cuh.
#include "../../../launch/launch_kernel.cuh"
#include "kernel.cuh"
#include "launch.h"

namespace {

using kernel = void (*)(int2_many::work);

template <typename X, int kColumns, bool kPairs> kernel kernel_as(size_t *bytes, int *threads) {
  using shape = int2_many::shape<X, kColumns / 8, kPairs>;
  *bytes = 1024 + sizeof(int2_many::shared<shape>), *threads = shape::threads;
  static_assert(1024 + sizeof(int2_many::shared<shape>) <= 227 * 1024, "a block fits");
  return int2_many::run<shape>;
}

template <typename X> kernel kernel_of(int columns, bool pairs, size_t *bytes, int *threads) {
  if constexpr (!std::is_same_v<X, int8_t>) {
    if (columns == 16)
      return pairs ? kernel_as<X, 16, true>(bytes, threads) : kernel_as<X, 16, false>(bytes, threads);
    if (columns == 32 && pairs)
      return kernel_as<X, 32, true>(bytes, threads);
  }
  switch (columns) {
  case 32:
    return kernel_as<X, 32, false>(bytes, threads);
  case 64:
    return kernel_as<X, 64, false>(bytes, threads);
  default:
    return kernel_as<X, 128, false>(bytes, threads);
  }
}

kernel kernel_for(const int2_many_product &product, int columns, size_t *bytes, int *threads) {
  // Sums of pairs are rounded to f16, which is more than f32 y is to lose.
  const bool pairs = product.y_type != GEMM_F32;
  switch (product.x_type) {
  case GEMM_F16:
    return kernel_of<__half>(columns, pairs, bytes, threads);
  case GEMM_BF16:
    return kernel_of<__nv_bfloat16>(columns, pairs, bytes, threads);
  default:
    return kernel_of<int8_t>(columns, false, bytes, threads);
  }
}

} // namespace

extern "C" cudaError_t int2_many_launch(cudaStream_t stream, const struct int2_many_config *config,
                                        const struct int2_many_plan *plan, const struct int2_many_product *product,
                                        const CUtensorMap *x, bool dependent, bool together) {
  int2_many::work work = {};
  work.product = *product;
  work.plan = *plan;
  work.split_k = config->split_k;
  work.group = config->group;
  work.x = *x;
  size_t bytes = 0;
  int threads = 0;
  const kernel run = kernel_for(*product, config->columns, &bytes, &threads);
  launch_shape shape;
  shape.grid = dim3(static_cast<unsigned>(plan->blocks));
  shape.block = dim3(static_cast<unsigned>(threads));
  shape.shared_bytes = bytes;
  shape.dependent = dependent;
  shape.cooperative = together && config->split_k > 1;
  return launch_kernel(stream, shape, run, work);
}

extern "C" const void *kernel_of_int2_many(void) {
  return reinterpret_cast<const void *>(&int2_many::run<int2_many::shape<__half, 2, true>>);
}
