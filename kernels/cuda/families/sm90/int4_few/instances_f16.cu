// The kernels of int4_few for x of f16.
#include "instances.cuh"
#include "launch.h"

int4_few::kernel int4_few::kernel_f16(const int4_form &form, int columns) {
  return kernel_by<__half>(form, columns);
}

extern "C" const void *kernel_of_int4_few_f16(void) {
  return reinterpret_cast<const void *>(&int4_few::run<int4_few::form<false, 1, false>, __half, 1>);
}
