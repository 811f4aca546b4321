// Launcher of grouped_int2_many/kernel.cuh.
#include "../../../launch/launch_kernel.cuh"
#include "instances.cuh"
#include "launch.h"

static grouped_int2_many::instance instance_for(enum gemm_type x_type, int columns) {
  switch (x_type) {
  case GEMM_F16:
    return grouped_int2_many::f16_instance(columns);
  case GEMM_BF16:
    return grouped_int2_many::bf16_instance(columns);
  default:
    return grouped_int2_many::int8_instance(columns);
  }
}

extern "C" cudaError_t grouped_int2_many_launch(cudaStream_t stream, int columns, const struct tiles_product *product,
                                                const CUtensorMap x[GROUPED_INT2_MANY_BOXES], int sms, bool dependent) {
  const grouped_int2_many::instance run = instance_for(product->x_type, columns);
  const int64_t row_blocks = product->n / INT2_BLOCK_ROWS, pieces = (row_blocks + run.groups - 1) / run.groups;
  const int64_t tiles = pieces * experts_tiles_most(product->m, product->experts, columns);
  if (product->n % INT2_BLOCK_ROWS != 0 || tiles > INT32_MAX / 2)
    return cudaErrorInvalidConfiguration;
  grouped_int2_many::work work = {};
  work.like.product = *product;
  work.pieces = static_cast<int>(pieces);
  const int64_t unit = product->x_type == GEMM_INT8 ? static_cast<int>(INT2A8_TILE_K) : static_cast<int>(GEMM_GROUP);
  work.tiles_k = static_cast<int>(product->k / unit);
  work.row_blocks = static_cast<int>(row_blocks);
  for (int i = 0; i < GROUPED_INT2_MANY_BOXES; i++)
    work.x[i] = x[i];
  launch_shape shape;
  shape.grid = dim3(static_cast<unsigned>(tiles < sms ? tiles : sms));
  shape.block = dim3(static_cast<unsigned>(run.threads));
  shape.shared_bytes = run.shared_bytes;
  shape.dependent = dependent;
  return launch_kernel(stream, shape, run.kernel, work);
}

static const load_early early[] = {grouped_int2_many::f16_instance(GROUPED_INT2_MANY_PAIRS).kernel,
                                   grouped_int2_many::bf16_instance(GROUPED_INT2_MANY_PAIRS).kernel,
                                   grouped_int2_many::int8_instance(GROUPED_INT2_MANY_COLUMNS_MOST).kernel};
