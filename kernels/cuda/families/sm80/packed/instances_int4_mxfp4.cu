// The kernels for MXFP4.
#include "int4_kernels.cuh"

namespace sm80_packed {

kernel mxfp4_kernel(gemm_type x_type, int columns) {
  return int4_kernel_of<kind4::mxfp4>(x_type, columns);
}

float mxfp4_unit(gemm_type x_type) {
  return x_type == GEMM_F16 ? codes4::e2m1_unit<__half> : codes4::e2m1_unit<__nv_bfloat16>;
}

} // namespace sm80_packed
