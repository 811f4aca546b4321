// The kernels of int4_few for x of f16.
#include "instances.cuh"

int4_few::kernel int4_few::kernel_f16(const int4_form &form, int columns) {
  return kernel_by<__half>(form, columns, false);
}
