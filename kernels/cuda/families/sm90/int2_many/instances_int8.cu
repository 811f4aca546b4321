// The kernels for x of INT8.
#include "instances.cuh"

namespace int2_many {

instance int8_instance(int columns) {
  switch (columns) {
  case 32:
    return instance_as<int8_t, 32, false>();
  case 48:
    return instance_as<int8_t, 48, false>();
  case 64:
    return instance_as<int8_t, 64, false>();
  case 96:
    return instance_as<int8_t, 96, false>();
  case 112:
    return instance_as<int8_t, 112, false>();
  default:
    return instance_as<int8_t, 128, false>();
  }
}

} // namespace int2_many
