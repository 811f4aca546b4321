// The kernels for INT8.
#include "instances.cuh"

namespace fp8_many {

instance integer_instance(int rows, int columns, gemm_type y_type) {
  return y_type == GEMM_F32 ? instance_of<float, sums::integers>(rows, columns)
                            : instance_of<half_or_bf16, sums::integers>(rows, columns);
}

} // namespace fp8_many
