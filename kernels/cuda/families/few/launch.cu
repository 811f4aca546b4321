// Launcher of few/kernel.cuh.
#include "../../launch/launch_kernel.cuh"
#include "kernel.cuh"
#include "launch.h"

namespace {

using kernel = void (*)(few::work);

kernel kernel_of(const hopper_product &p) {
  const bool integers = p.format == GEMM_FORMAT_INT8;
  if (few_columns(p.m) == 8)
    return integers ? few::run<true, 8> : few::run<false, 8>;
  return integers ? few::run<true, 16> : few::run<false, 16>;
}

} // namespace

extern "C" cudaError_t few_launch(cudaStream_t stream, const struct few_config *config,
                                  const struct hopper_product *product, int sms, bool dependent) {
  const int64_t tiles = (product->n + config->rows - 1) / config->rows;
  const int64_t pairs = (product->k + 2 * FEW_UNIT - 1) / (2 * FEW_UNIT);
  const int64_t each = (pairs + config->k_warps - 1) / config->k_warps;
  if (!few_config_valid(config) || product->m > FEW_COLUMNS_MOST ||
      product->n + 2 * FEW_WARPS * FEW_ROWS * sms > INT32_MAX)
    return cudaErrorInvalidConfiguration;
  const kernel run = kernel_of(*product);
  few::work work = {};
  work.product = *product;
  work.rows = config->rows;
  work.k_warps = config->k_warps;
  work.tiles = static_cast<int>(tiles);
  work.passes = static_cast<int>((2 * each + FEW_PASS - 1) / FEW_PASS);
  work.x_stride = few_x_stride(product->k);
  work.dependent = dependent;
  const int shared_bytes = static_cast<int>(few_shared_bytes(product->m, product->k));
  launch_shape shape;
  shape.grid = dim3(static_cast<unsigned>(tiles < sms ? tiles : sms));
  shape.block = dim3(few::threads);
  shape.shared_bytes = static_cast<size_t>(shared_bytes);
  shape.dependent = dependent; // never on older devices
  return launch_kernel(stream, shape, run, work);
}

static const load_early early(few::run<true, 8>);
