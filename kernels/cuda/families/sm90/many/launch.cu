// Launcher of many/kernel.cuh.
#include "../../../launch/launch_kernel.cuh"
#include "kernel.cuh"
#include "launch.h"

namespace {

using kernel = void (*)(many::work);

template <int kColumns> kernel kernel_of(gemm_type y_type) {
  static_assert(sizeof(many::shared<kColumns>) + 1024 <= 227 * 1024, "a block fits");
  if (y_type == GEMM_F32)
    return many::run<float, kColumns>;
  return y_type == GEMM_F16 ? many::run<__half, kColumns> : many::run<__nv_bfloat16, kColumns>;
}

} // namespace

extern "C" cudaError_t many_launch(cudaStream_t stream, const struct many_config *config,
                                   const struct hopper_product *product, const CUtensorMap *w, const CUtensorMap *x,
                                   int sms) {
  const int64_t m_tiles = (product->m + MANY_ROWS - 1) / MANY_ROWS;
  const int64_t n_tiles = (product->n + config->columns - 1) / config->columns;
  if (!many_config_valid(config) || m_tiles * n_tiles > INT32_MAX / 2)
    return cudaErrorInvalidConfiguration;
  many::work work = {};
  work.product = *product;
  work.steps = static_cast<int>((product->k + MANY_STEP - 1) / MANY_STEP);
  work.m_tiles = static_cast<int>(m_tiles);
  work.n_tiles = static_cast<int>(n_tiles);
  work.group = config->group;
  work.w = *w;
  work.x = *x;
  const kernel run = config->columns == 256 ? kernel_of<256>(product->y_type) : kernel_of<128>(product->y_type);
  const int shared_bytes = many_shared_bytes(config->columns);
  const int64_t tiles = m_tiles * n_tiles;
  launch_shape shape;
  shape.grid = dim3(static_cast<unsigned>(tiles < sms ? tiles : sms));
  shape.block = dim3(many::threads);
  shape.shared_bytes = static_cast<size_t>(shared_bytes);
  return launch_kernel(stream, shape, run, work);
}

static const load_early early(many::run<float, 256>);
