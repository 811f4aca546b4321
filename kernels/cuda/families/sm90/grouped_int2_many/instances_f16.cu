// The kernels for x of f16.
#include "instances.cuh"

namespace grouped_int2_many {

instance f16_instance(int columns) {
  return instance_of<__half, 96>(columns);
}

} // namespace grouped_int2_many
