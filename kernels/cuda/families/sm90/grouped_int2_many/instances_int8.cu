// The kernels for x of INT8, with INT2A8 weights.
#include "instances.cuh"

namespace grouped_int2_many {

instance int8_instance(int columns) {
  return columns == 32 ? instance_as<int8_t, 32>() : instance_as<int8_t, 128>();
}

} // namespace grouped_int2_many
