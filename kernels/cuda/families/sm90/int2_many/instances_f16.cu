// The kernels for x of f16.
#include "instances.cuh"

namespace int2_many {

instance f16_instance(int columns, bool pairs) {
  return instance_of<__half>(columns, pairs);
}

} // namespace int2_many
