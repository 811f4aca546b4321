// The kernels for x of INT8.
#include "instances.cuh"

namespace int2_many {

instance int8_instance(int columns) {
  switch (columns) {
  case 32:
    return instance_as<int8_t, 32, false, 256>();
  case 48:
    return instance_as<int8_t, 48, false, 256>();
  case 64:
    return instance_as<int8_t, 64, false, 256>();
  case 96:
    return instance_as<int8_t, 96, false, 192>();
  case 112:
    return instance_as<int8_t, 112, false, 192>();
  default:
    return instance_as<int8_t, 128, false, 192>();
  }
}

} // namespace int2_many
