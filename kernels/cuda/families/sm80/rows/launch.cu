// Launcher of sm80/rows/kernel.cuh.
#include "../../../launch/launch_kernel.cuh"
#include "kernel.cuh"
#include "launch.h"

namespace {

using kernel = void (*)(sm80_rows::work);

kernel kernel_of(bool integers, int columns) {
  switch (columns) {
  case 16:
    return integers ? sm80_rows::run<true, 2> : sm80_rows::run<false, 2>;
  case 32:
    return integers ? sm80_rows::run<true, 4> : sm80_rows::run<false, 4>;
  case 64:
    return integers ? sm80_rows::run<true, 8> : sm80_rows::run<false, 8>;
  default:
    return sm80_rows::run<true, 16>;
  }
}

} // namespace

extern "C" cudaError_t sm80_rows_launch(cudaStream_t stream, const struct sm80_rows_config *config,
                                        const struct sm80_rows_plan *plan, const struct hopper_product *product,
                                        void *parts, bool dependent, bool early) {
  const bool integers = product->format == GEMM_FORMAT_INT8;
  sm80_rows::work work = {};
  work.product = *product;
  work.plan = *plan;
  work.columns = config->columns;
  work.n_warps = config->n_warps;
  work.k_warps = config->k_warps;
  work.split_k = config->split_k;
  work.ends = static_cast<int>((product->m + config->columns - 1) / config->columns);
  work.steps = static_cast<int>((product->k + SM80_ROWS_STEP - 1) / SM80_ROWS_STEP);
  work.turns = (plan->slice + config->k_warps - 1) / config->k_warps;
  work.parts = parts;
  work.dependent = dependent;
  launch_shape shape;
  shape.grid = dim3(static_cast<unsigned>(plan->blocks), static_cast<unsigned>(config->split_k));
  shape.block = dim3(static_cast<unsigned>(config->n_warps * config->k_warps * 32));
  shape.shared_bytes = static_cast<size_t>(plan->shared_bytes);
  shape.dependent = dependent;
  cudaError_t result = launch_kernel(stream, shape, kernel_of(integers, config->columns), work);
  if (result != cudaSuccess || config->split_k == 1)
    return result;
  launch_shape adding;
  const int64_t threads = product->m * ((product->n + 3) / 4);
  adding.grid = dim3(static_cast<unsigned>((threads + sm80_rows::adders - 1) / sm80_rows::adders));
  adding.block = dim3(sm80_rows::adders);
  adding.dependent = early;
  return integers ? launch_kernel(stream, adding, sm80_rows::add_slices<int>, work)
                  : launch_kernel(stream, adding, sm80_rows::add_slices<float>, work);
}

extern "C" const void *kernel_of_sm80_rows(void) {
  return reinterpret_cast<const void *>(&sm80_rows::add_slices<int>);
}
