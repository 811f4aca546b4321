// The kernels for x of bf16 and tiles of fewer rows of W.
#include "instances.cuh"

namespace int2_many {

instance bf16_fewer_instance(int rows, bool pairs) {
  return narrowest_of<__nv_bfloat16>(rows, pairs);
}

} // namespace int2_many
