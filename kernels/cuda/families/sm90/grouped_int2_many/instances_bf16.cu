// The kernels for x of bf16.
#include "instances.cuh"

namespace grouped_int2_many {

instance bf16_instance(int columns) {
  return instance_of<__nv_bfloat16, 128>(columns);
}

} // namespace grouped_int2_many
