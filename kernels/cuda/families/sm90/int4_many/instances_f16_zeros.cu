// The kernels for x of f16, INT4 with zero points.
#include "instances.cuh"

namespace int4_many {

instance f16_zeros_instance(int columns, const int4_form &form, int4_many_kind kind) {
  return kind == INT4_MANY_EXACT ? int4_instance<__half, INT4_MANY_EXACT, true>(columns, form.groups)
                                 : int4_instance<__half, INT4_MANY_SCALED, true>(columns, form.groups);
}

} // namespace int4_many
