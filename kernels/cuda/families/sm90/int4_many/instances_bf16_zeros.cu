// The kernels for x of bf16, INT4 with zero points.
#include "instances.cuh"

namespace int4_many {

instance bf16_zeros_instance(int columns, const int4_form &form, int4_many_kind) {
  return int4_instance<__nv_bfloat16, INT4_MANY_SUMS, true>(columns, form.groups);
}

} // namespace int4_many
