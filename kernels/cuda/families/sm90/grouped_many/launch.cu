// Launcher of grouped_many/kernel.cuh.
#include "../../../launch/launch_kernel.cuh"
#include "kernel.cuh"
#include "launch.h"

namespace {

using kernel = void (*)(grouped_many::work);

kernel kernel_of(const hopper_product &p) {
  if (p.format == GEMM_FORMAT_FP8)
    return grouped_many::run<float, __nv_bfloat16>;
  return p.y_type == GEMM_BF16 ? grouped_many::run<int, __nv_bfloat16> : grouped_many::run<int, __half>;
}

constexpr size_t shared_bytes = sizeof(grouped_many::shared) + 1024;
static_assert(shared_bytes <= 227 * 1024, "a multiprocessor has room");

} // namespace

extern "C" cudaError_t grouped_many_launch(cudaStream_t stream, int columns, const struct hopper_product *product,
                                           const CUtensorMap *w, const CUtensorMap x[GROUPED_MANY_BOXES], int sms,
                                           bool dependent) {
  const int64_t pieces = (product->n + GROUPED_MANY_ROWS - 1) / GROUPED_MANY_ROWS;
  const int64_t tiles = experts_tiles_most(product->m, product->experts, columns);
  const bool typed =
      product->y_type == GEMM_BF16 || (product->y_type == GEMM_F16 && product->format == GEMM_FORMAT_INT8);
  if (!typed || columns < 1 || columns > GROUPED_MANY_COLUMNS || pieces * tiles > INT32_MAX / 2 ||
      product->experts * product->n > INT32_MAX)
    return cudaErrorInvalidConfiguration;
  grouped_many::work work = {};
  work.product = *product;
  work.pieces = static_cast<int>(pieces);
  work.steps = static_cast<int>((product->k + GROUPED_MANY_STEP - 1) / GROUPED_MANY_STEP);
  work.w = *w;
  for (int i = 0; i < GROUPED_MANY_BOXES; i++)
    work.x[i] = x[i];
  launch_shape shape;
  shape.grid = dim3(static_cast<unsigned>(pieces * tiles < sms ? pieces * tiles : sms));
  shape.block = dim3(grouped_many::threads);
  shape.shared_bytes = shared_bytes;
  shape.dependent = dependent;
  return launch_kernel(stream, shape, kernel_of(*product), work);
}

static const load_early early(grouped_many::run<float, __nv_bfloat16>);
