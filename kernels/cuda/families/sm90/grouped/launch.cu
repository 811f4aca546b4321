// Launcher of grouped/kernel.cuh.
#include "../../../launch/launch_kernel.cuh"
#include "kernel.cuh"
#include "launch.h"

namespace {

using kernel = void (*)(grouped::work);
using grouped::sums;

template <sums kSums> kernel kernel_of(const grouped_config &c) {
  return c.groups == 1 ? grouped::run<kSums, 1> : grouped::run<kSums, 2>;
}

kernel kernel_of(const grouped_config &c, const hopper_product &p) {
  if (p.format == GEMM_FORMAT_INT8)
    return kernel_of<sums::integers>(c);
  if (p.format == GEMM_FORMAT_F16)
    return kernel_of<sums::f16>(c);
  if (p.format == GEMM_FORMAT_BF16)
    return kernel_of<sums::bf16>(c);
  if (p.scale == GEMM_SCALE_BLOCK)
    return kernel_of<sums::block_scaled>(c);
  return p.y_type == GEMM_BF16 ? kernel_of<sums::every_128>(c) : kernel_of<sums::every_32>(c);
}

static_assert(sizeof(grouped::shared<2>) + 1024 <= 5 * 1024 + 2 * 4 * 8 * 80, "grouped_shared_bytes has room");
static_assert(sizeof(grouped::shared<1>) + 1024 <= 5 * 1024 + 1 * 4 * 8 * 80, "grouped_shared_bytes has room");

} // namespace

extern "C" cudaError_t grouped_launch(cudaStream_t stream, const struct grouped_config *config,
                                      const struct hopper_product *product, const CUtensorMap *w,
                                      const CUtensorMap x[GROUPED_WIDTHS], int sms, bool dependent) {
  const int rows = 64 * config->groups;
  const int64_t pieces = (product->n + rows - 1) / rows;
  const int64_t tiles = experts_tiles_most(product->m, product->experts, config->columns);
  if (!grouped_config_valid(config, product->scale) || pieces * tiles > INT32_MAX / 2 ||
      product->experts * product->n > INT32_MAX)
    return cudaErrorInvalidConfiguration;
  grouped::work work = {};
  work.product = *product;
  work.pieces = static_cast<int>(pieces);
  work.steps = static_cast<int>((product->k + GROUPED_STEP - 1) / GROUPED_STEP);
  work.stages = grouped_stages(config);
  work.columns = config->columns;
  work.w = *w;
  for (int i = 0; i < GROUPED_WIDTHS && GROUPED_WIDTH(i) <= config->columns; i++)
    work.x[i] = x[i];
  launch_shape shape;
  const int64_t blocks = static_cast<int64_t>(sms) * config->blocks;
  shape.grid = dim3(static_cast<unsigned>(pieces * tiles < blocks ? pieces * tiles : blocks));
  shape.block = dim3(static_cast<unsigned>(grouped::threads_of(config->groups)));
  shape.shared_bytes = static_cast<size_t>(grouped_shared_bytes(config));
  shape.dependent = dependent;
  return launch_kernel(stream, shape, kernel_of(*config, *product), work);
}

static const load_early early(grouped::run<sums::integers, 1>);
