// The kernels for x of f16 and tiles of fewer rows of W.
#include "instances.cuh"

namespace int2_many {

instance f16_fewer_instance(int columns, int rows, bool pairs) {
  switch (columns) {
  case 16:
    return narrowest_of<__half>(rows, pairs);
  case 96:
    return instance_as<__half, 96, false, 192>();
  case 104:
    return instance_as<__half, 104, false, 192>();
  default:
    return instance_as<__half, 128, false, 192>();
  }
}

} // namespace int2_many
