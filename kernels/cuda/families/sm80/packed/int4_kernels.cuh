// The kernels of one kind of 4 bits.
#pragma once

#include "instances.cuh"
#include "int4.cuh"

namespace sm80_packed {

template <typename W> kernel int4_columns(int columns) {
  switch (columns) {
  case 8:
    return run<W, 1, 2>;
  case 16:
    return run<W, 2, 2>;
  case 32:
    return run<W, 4, 2>;
  default:
    return run<W, 8, 2>;
  }
}

template <kind4 kKind> kernel int4_kernel_of(gemm_type x_type, int columns) {
  if (x_type == GEMM_F32)
    return columns == 8 ? run<weight4<kKind, float>, 1, 2> : run<weight4<kKind, float>, 2, 2>;
  return x_type == GEMM_F16 ? int4_columns<weight4<kKind, __half>>(columns)
                            : int4_columns<weight4<kKind, __nv_bfloat16>>(columns);
}

} // namespace sm80_packed
