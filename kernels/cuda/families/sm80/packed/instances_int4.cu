// The kernels for INT4.
#include "int4_kernels.cuh"

namespace sm80_packed {

kernel int4_kernel(gemm_type x_type, int columns) {
  return int4_kernel_of<kind4::integers>(x_type, columns);
}

} // namespace sm80_packed
