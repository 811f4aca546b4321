// The kernels for INT2 and INT2A8.
#include "folded.cuh"
#include "instances.cuh"

namespace sm80_packed {

namespace {

template <typename X> kernel kernel_of(int columns, int units) {
  switch (columns) {
  case 8:
    return units == 2 ? run<weight2<X>, 1, 2> : run<weight2<X>, 1, 4>;
  case 16:
    return units == 2 ? run<weight2<X>, 2, 2> : run<weight2<X>, 2, 4>;
  case 32:
    return units == 2 ? run<weight2<X>, 4, 2> : run<weight2<X>, 4, 4>;
  default:
    return units == 1 ? run<weight2<X>, 8, 1> : run<weight2<X>, 8, 2>;
  }
}

template <> kernel kernel_of<float>(int columns, int) {
  return columns == 8 ? run<weight2<float>, 1, 2> : run<weight2<float>, 2, 2>;
}

} // namespace

kernel int2_kernel(gemm_type x_type, int columns, int units) {
  switch (x_type) {
  case GEMM_F16:
    return columns > 32 && units == 4 ? run_folded<8, 4> : kernel_of<__half>(columns, units);
  case GEMM_BF16:
    return kernel_of<__nv_bfloat16>(columns, units);
  case GEMM_F32:
    return kernel_of<float>(columns, units);
  default:
    return kernel_of<int8_t>(columns, units);
  }
}

} // namespace sm80_packed
