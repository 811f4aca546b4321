// Launcher of sm80/packed/kernel.cuh, and the kernel that adds sums of parts of K.
#include "../../../launch/launch_kernel.cuh"
#include "instances.cuh"
#include "launch.h"

namespace sm80_packed {

constexpr int adders = 256; // threads of a block that adds parts

// Of a launch with parts, whose work this is. Blocks of rows that one block had have been written.
__global__ void __launch_bounds__(adders) add_parts(const __grid_constant__ work w) {
  const int quads = w.plan.rows / 4, i = static_cast<int>(blockIdx.x) * adders + threadIdx.x;
  const int column = i / quads, row = i % quads * 4, begin = static_cast<int>(blockIdx.y) * w.plan.shares.steps;
  const int first = sm80::block_of(w.plan.shares, begin),
            last = sm80::block_of(w.plan.shares, begin + w.plan.shares.steps - 1);
#if __CUDA_ARCH__ >= 900
  ptx::let_next_grid_start();
  ptx::wait_for_previous_grid();
#endif
  if (column >= w.product.m || first == last)
    return;
  float sum[4] = {};
  for (int block = first; block <= last; block++)
    add_four(sum, part_of(w, block, sm80::steps_before(w.plan.shares, block) < begin) + column * w.plan.rows + row);
  const int64_t n = static_cast<int64_t>(blockIdx.y) * w.plan.rows + row;
  write_four(w, column, n, sum, columns(w, n));
}

} // namespace sm80_packed

namespace {

struct instance {
  sm80_packed::kernel kernel;
  float unit; // by what its sums are to be multiplied
};

instance instance_of(const tiles_product &product, int columns, int units) {
  switch (product.format) {
  case GEMM_FORMAT_INT4:
    return {sm80_packed::int4_kernel(product.x_type, columns), 1.0f};
  case GEMM_FORMAT_MXFP4:
    return {sm80_packed::mxfp4_kernel(product.x_type, columns), sm80_packed::mxfp4_unit(product.x_type)};
  case GEMM_FORMAT_NVFP4:
    return {sm80_packed::nvfp4_kernel(product.x_type, columns), sm80_packed::nvfp4_unit(product.x_type)};
  default:
    return {sm80_packed::int2_kernel(product.x_type, columns, units), 1.0f};
  }
}

} // namespace

extern "C" cudaError_t sm80_packed_launch(cudaStream_t stream, const struct sm80_packed_config *config,
                                          const struct sm80_packed_plan *plan, const struct tiles_product *product,
                                          bool dependent, bool early) {
  const instance run = instance_of(*product, plan->columns, config->units);
  sm80_packed::work work = {};
  work.product = *product;
  work.plan = *plan;
  work.n_warps = config->n_warps;
  work.k_warps = config->k_warps;
  work.groups = static_cast<int>(product->k / GEMM_GROUP);
  work.units = static_cast<int>((product->n + 63) / 64 * 4);
  work.unit = run.unit;
  work.dependent = dependent;
  launch_shape shape;
  shape.grid = dim3(static_cast<unsigned>(config->blocks));
  shape.block = dim3(static_cast<unsigned>(config->n_warps * config->k_warps * 32));
  shape.shared_bytes = static_cast<size_t>(plan->shared_bytes);
  shape.dependent = dependent;
  cudaError_t result = launch_kernel(stream, shape, run.kernel, work);
  if (result != cudaSuccess || plan->shares.parts == 0)
    return result;
  launch_shape adding;
  const int64_t threads = product->m * (plan->rows / 4);
  adding.grid = dim3(static_cast<unsigned>((threads + sm80_packed::adders - 1) / sm80_packed::adders),
                     static_cast<unsigned>(plan->row_blocks));
  adding.block = dim3(sm80_packed::adders);
  adding.dependent = early;
  return launch_kernel(stream, adding, sm80_packed::add_parts, work);
}

static const load_early early[] = {sm80_packed::int2_kernel(GEMM_F16, 8, 2), sm80_packed::int4_kernel(GEMM_F16, 8),
                                   sm80_packed::mxfp4_kernel(GEMM_F16, 8), sm80_packed::nvfp4_kernel(GEMM_F16, 8),
                                   sm80_packed::add_parts};
