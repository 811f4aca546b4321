// Launcher of hopper/kernel.cuh.
#include "../../../launch/launch_kernel.cuh"
#include "kernel.cuh"
#include "launch.h"

namespace {

using kernel = void (*)(hopper::work);
using hopper::sums;

template <sums kSums> kernel kernel_of(const hopper_config &c) {
  switch (c.columns) {
  case 8:
    if constexpr (kSums != sums::every_128)
      return hopper::run<kSums, 8>;
    return nullptr;
  case 16:
    if constexpr (kSums != sums::every_128)
      return hopper::run<kSums, 16>;
    return nullptr;
  case 32:
    return hopper::run<kSums, 32>;
  case 64:
    return hopper::run<kSums, 64>;
  default: // the registers hold no partial sums, block sums and sums of 128 columns
    if constexpr (kSums != sums::block_scaled)
      return hopper::run<kSums, 128>;
    return nullptr;
  }
}

kernel kernel_of(const hopper_config &c, const hopper_product &p) {
  if (p.format == GEMM_FORMAT_INT8)
    return kernel_of<sums::integers>(c);
  if (p.scale == GEMM_SCALE_BLOCK)
    return kernel_of<sums::block_scaled>(c);
  const bool fine = p.y_type != GEMM_BF16 || c.columns <= hopper::fine_columns;
  return fine ? kernel_of<sums::every_32>(c) : kernel_of<sums::every_128>(c);
}

} // namespace

extern "C" cudaError_t hopper_launch(cudaStream_t stream, const struct hopper_config *config,
                                     const struct hopper_product *product, const struct hopper_start *start) {
  const int64_t tiles = (product->n + config->rows - 1) / config->rows;
  const int64_t column_tiles = (product->m + config->columns - 1) / config->columns;
  const int rows_at_a_time = config->groups * 128 / hopper::row_lanes;
  const int64_t stride_most = UINT32_MAX / rows_at_a_time;
  if (!hopper_config_valid(config, product->scale) || tiles > INT32_MAX / column_tiles ||
      product->w_stride > stride_most || product->x_stride > stride_most)
    return cudaErrorInvalidConfiguration;
  const kernel run = kernel_of(*config, *product);
  const int shared_bytes = hopper_shared_bytes(config, product->scale);
  hopper::work work = {};
  work.product = *product;
  work.rows = config->rows;
  work.ahead = config->ahead;
  const int steps = static_cast<int>((product->k + hopper::step_bytes - 1) / hopper::step_bytes);
  work.steps = steps / config->split_k;
  work.longer = steps % config->split_k;
  work.places = hopper_places(config);
  work.sums = hopper_sums_offset(config, product->scale);
  work.inverse = (65536 + rows_at_a_time - 1) / rows_at_a_time;
  work.column_tiles = static_cast<int>(column_tiles);
  work.start = *start;
  launch_shape shape;
  shape.grid = dim3(static_cast<unsigned>(tiles * column_tiles), static_cast<unsigned>(config->split_k));
  shape.block = dim3(static_cast<unsigned>(config->groups * 128));
  shape.shared_bytes = static_cast<size_t>(shared_bytes);
  if (config->split_k > 1)
    shape.cluster = dim3(1, static_cast<unsigned>(config->split_k));
  shape.dependent = start->dependent;
  return launch_kernel(stream, shape, run, work);
}

static const load_early early(hopper::run<sums::integers, 8>);
