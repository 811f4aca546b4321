// Which kernels there are: those of 2 bits and of each kind of 4, in files of their own, which are compiled at the same
// time.
#pragma once

#include "kernel.cuh"

namespace sm80_packed {

using kernel = void (*)(work);

kernel int2_kernel(gemm_type x_type, int columns, int units);
kernel int4_kernel(gemm_type x_type, int columns);
kernel mxfp4_kernel(gemm_type x_type, int columns);
kernel nvfp4_kernel(gemm_type x_type, int columns);
// By what their sums are to be multiplied.
float mxfp4_unit(gemm_type x_type);
float nvfp4_unit(gemm_type x_type);

} // namespace sm80_packed
