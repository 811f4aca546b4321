// The kernels for x of INT8, INT4A8 without zero points.
#include "instances.cuh"

namespace int4_many {

instance int8_instance(int columns, const int4_form &form) {
  switch (form.groups) {
  case 1:
    return instance_of<int8_t, weight_of<false, 1, false>, INT4_MANY_INT8>(columns);
  case 2:
    return instance_of<int8_t, weight_of<false, 2, false>, INT4_MANY_INT8_FINE>(columns);
  default:
    return instance_of<int8_t, weight_of<false, 4, false>, INT4_MANY_INT8_FINE>(columns);
  }
}

} // namespace int4_many
