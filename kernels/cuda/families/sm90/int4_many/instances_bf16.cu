// The kernels for x of bf16, INT4 without zero points, MXFP4 and NVFP4.
#include "instances.cuh"

namespace int4_many {

instance bf16_instance(int columns, const int4_form &form, int4_many_kind kind) {
  using mxfp4 = weight_of<true, 4, false>;
  if (form.groups == INT4_GROUPS_MOST)
    return instance_of<__nv_bfloat16, weight_of<true, INT4_GROUPS_MOST, false>, INT4_MANY_SCALED>(columns);
  if (form.e2m1)
    return kind == INT4_MANY_EXACT ? instance_of<__nv_bfloat16, mxfp4, INT4_MANY_EXACT>(columns)
                                   : instance_of<__nv_bfloat16, mxfp4, INT4_MANY_SCALED>(columns);
  return int4_instance<__nv_bfloat16, INT4_MANY_SUMS, false>(columns, form.groups);
}

} // namespace int4_many
