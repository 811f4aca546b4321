// The kernels for FP8.
#include "instances.cuh"

namespace fp8_many {

instance float_instance(int rows, int columns, gemm_type y_type) {
  if (y_type == GEMM_BF16)
    return instance_of<__nv_bfloat16, sums::every_128>(rows, columns);
  if (rows != FP8_MANY_ROWS_LEAST)
    return {};
  return y_type == GEMM_F16 ? instance_of<__half, sums::every_32, FP8_MANY_ROWS_LEAST>(columns)
                            : instance_of<float, sums::every_32, FP8_MANY_ROWS_LEAST>(columns);
}

} // namespace fp8_many
