// The kernels for NVFP4.
#include "int4_kernels.cuh"

namespace sm80_packed {

kernel nvfp4_kernel(gemm_type x_type, int columns) {
  return int4_kernel_of<kind4::nvfp4>(x_type, columns);
}

float nvfp4_unit(gemm_type x_type) {
  return x_type == GEMM_F16 ? codes4::e4m3_unit<__half> : codes4::e4m3_unit<__nv_bfloat16>;
}

} // namespace sm80_packed
