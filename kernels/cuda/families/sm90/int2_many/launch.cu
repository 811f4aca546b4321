// Launcher of int2_many/kernel.cuh.
#include "instances.cuh"
#include "launch.h"

static int2_many::instance instance_for(const tiles_product &product, const int2_many_config &config) {
  // Sums of pairs are rounded to f16, which is more than f32 y is to lose.
  const bool pairs = product.y_type != GEMM_F32;
  const int columns = config.columns, rows = config.rows;
  switch (product.x_type) {
  case GEMM_F16:
    return rows < 256 ? int2_many::f16_fewer_instance(columns, rows, pairs) : int2_many::f16_instance(columns, pairs);
  case GEMM_BF16:
    return rows < 256 && columns == 16 ? int2_many::bf16_fewer_instance(rows, pairs)
                                       : int2_many::bf16_instance(columns, pairs);
  default:
    return int2_many::int8_instance(columns);
  }
}

extern "C" cudaError_t int2_many_launch(cudaStream_t stream, const struct int2_many_config *config,
                                        const struct int2_many_plan *plan, const struct tiles_product *product,
                                        const CUtensorMap *x, bool dependent, bool together) {
  return int2_many::launch(stream, instance_for(*product, *config), *config, *plan, *product, *x, dependent, together);
}

static const load_early early[] = {int2_many::f16_instance(INT2_MANY_COLUMNS_LEAST, true).kernel,
                                   int2_many::f16_fewer_instance(128, 192, false).kernel,
                                   int2_many::bf16_instance(INT2_MANY_COLUMNS_LEAST, true).kernel,
                                   int2_many::bf16_fewer_instance(128, true).kernel,
                                   int2_many::int8_instance(INT2_MANY_COLUMNS_MOST).kernel};
