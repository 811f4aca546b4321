// The kernels for x of f16, INT4 without zero points, MXFP4 and NVFP4.
#include "instances.cuh"

namespace int4_many {

instance f16_instance(int columns, const int4_form &form, int4_many_kind kind) {
  using mxfp4 = weight_of<true, 4, false>;
  if (form.groups == INT4_GROUPS_MOST)
    return instance_of<__half, weight_of<true, INT4_GROUPS_MOST, false>, INT4_MANY_SCALED>(columns);
  if (form.e2m1)
    return kind == INT4_MANY_EXACT ? instance_of<__half, mxfp4, INT4_MANY_EXACT>(columns)
                                   : instance_of<__half, mxfp4, INT4_MANY_SCALED>(columns);
  return kind == INT4_MANY_EXACT ? int4_instance<__half, INT4_MANY_EXACT, false>(columns, form.groups)
                                 : int4_instance<__half, INT4_MANY_SCALED, false>(columns, form.groups);
}

} // namespace int4_many
