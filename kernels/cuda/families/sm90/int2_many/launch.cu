// Launcher of int2_many/kernel.cuh.
#include "../../../launch/launch_kernel.cuh"
#include "instances.cuh"
#include "launch.h"

static int2_many::instance instance_for(const int2_many_product &product, const int2_many_config &config) {
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
                                        const struct int2_many_plan *plan, const struct int2_many_product *product,
                                        const CUtensorMap *x, bool dependent, bool together) {
  int2_many::work work = {};
  work.product = *product;
  work.plan = *plan;
  work.split_k = config->split_k;
  work.group = config->group;
  work.x = *x;
  const int2_many::instance run = instance_for(*product, *config);
  launch_shape shape;
  shape.grid = dim3(static_cast<unsigned>(plan->blocks));
  shape.block = dim3(static_cast<unsigned>(run.threads));
  shape.shared_bytes = run.shared_bytes;
  shape.dependent = dependent;
  shape.cooperative = together && config->split_k > 1;
  return launch_kernel(stream, shape, run.kernel, work);
}

extern "C" const void *kernel_of_int2_many(void) {
  return reinterpret_cast<const void *>(int2_many::f16_instance(INT2_MANY_COLUMNS_LEAST, true).kernel);
}

extern "C" const void *kernel_of_int2_many_fewer(void) {
  return reinterpret_cast<const void *>(int2_many::f16_fewer_instance(128, 192, false).kernel);
}

extern "C" const void *kernel_of_int2_many_bf16(void) {
  return reinterpret_cast<const void *>(int2_many::bf16_instance(INT2_MANY_COLUMNS_LEAST, true).kernel);
}

extern "C" const void *kernel_of_int2_many_bf16_fewer(void) {
  return reinterpret_cast<const void *>(int2_many::bf16_fewer_instance(128, true).kernel);
}

extern "C" const void *kernel_of_int2_many_int8(void) {
  return reinterpret_cast<const void *>(int2_many::int8_instance(INT2_MANY_COLUMNS_MOST).kernel);
}
