// The kernels for INT2A8.
#include "instances.cuh"

namespace fp8_many {

template <typename Out, int kColumns> static instance coded_instance_of() {
  return instance_as<tile_of<Out, sums::scaled, FP8_MANY_ROWS_LEAST, kColumns>>();
}

instance coded_instance(int columns, gemm_type y_type) {
  if (columns == 96)
    return y_type == GEMM_F32 ? coded_instance_of<float, 96>() : coded_instance_of<half_or_bf16, 96>();
  if (y_type == GEMM_F32)
    return {};
  return columns == 112   ? coded_instance_of<half_or_bf16, 112>()
         : columns == 128 ? coded_instance_of<half_or_bf16, 128>()
                          : instance();
}

} // namespace fp8_many
