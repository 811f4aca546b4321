// The kernels for x of bf16.
#include "instances.cuh"

namespace int2_many {

instance bf16_instance(int columns, bool pairs) {
  return instance_of<__nv_bfloat16>(columns, pairs);
}

} // namespace int2_many
