// The kernels of int4_few for x of bf16, and of f32.
#include "instances.cuh"

int4_few::kernel int4_few::kernel_bf16(const int4_form &form, int columns, bool scaled) {
  return kernel_by<__nv_bfloat16>(form, columns, scaled);
}
