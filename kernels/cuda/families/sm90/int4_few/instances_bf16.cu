// The kernels of int4_few for x of bf16, and of f32.
#include "instances.cuh"
#include "launch.h"

int4_few::kernel int4_few::kernel_bf16(const int4_form &form, int columns) {
  return kernel_by<__nv_bfloat16>(form, columns);
}

extern "C" const void *kernel_of_int4_few_bf16(void) {
  return reinterpret_cast<const void *>(&int4_few::run<int4_few::form<false, 1, false>, __nv_bfloat16, 1>);
}
