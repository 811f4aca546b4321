// Launcher of int2_many.cuh.
#include "int2_many.cuh"
#include "launch_kernel.cuh"
#include "load.h"

namespace {

using kernel = void (*)(int2_many::work);

template <typename X> kernel kernel_of(int columns, size_t *bytes, int *threads) {
  static_assert(sizeof(int2_many::shared<16>) + 1024 <= 227 * 1024, "a block fits");
  static_assert(sizeof(int2_many::shared<8>) + 1024 <= 227 * 1024, "a block fits");
  static_assert(sizeof(int2_many::shared<4>) + 1024 <= 227 * 1024, "a block fits");
  static_assert(sizeof(int2_many::shared<2>) + 1024 <= 227 * 1024, "a block fits");
  switch (columns) {
  case 16:
    *bytes = 1024 + sizeof(int2_many::shared<2>), *threads = int2_many::shape<2>::threads;
    return int2_many::run<X, 2>;
  case 32:
    *bytes = 1024 + sizeof(int2_many::shared<4>), *threads = int2_many::shape<4>::threads;
    return int2_many::run<X, 4>;
  case 64:
    *bytes = 1024 + sizeof(int2_many::shared<8>), *threads = int2_many::shape<8>::threads;
    return int2_many::run<X, 8>;
  default:
    *bytes = 1024 + sizeof(int2_many::shared<16>), *threads = int2_many::shape<16>::threads;
    return int2_many::run<X, 16>;
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
  const kernel run = product->x_type == GEMM_F16 ? kernel_of<__half>(config->columns, &bytes, &threads)
                                                 : kernel_of<__nv_bfloat16>(config->columns, &bytes, &threads);
  launch_shape shape;
  shape.grid = dim3(static_cast<unsigned>(plan->blocks));
  shape.block = dim3(static_cast<unsigned>(threads));
  shape.shared_bytes = bytes;
  shape.dependent = dependent;
  shape.cooperative = together && config->split_k > 1;
  return launch_kernel(stream, shape, run, work);
}

extern "C" const void *kernel_of_int2_many(void) {
  return reinterpret_cast<const void *>(&int2_many::run<__half, 2>);
}
