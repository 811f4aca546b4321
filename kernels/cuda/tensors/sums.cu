// Launcher of sums.cuh.
#include "../launch/launch_kernel.cuh"
#include "sums.cuh"
#include "sums.h"

extern "C" cudaError_t tensors_sums_launch(cudaStream_t stream, const struct tensors_sums *sums) {
  constexpr int64_t columns = 4 * tensors::sums_lanes;
  tensors_sums filled = *sums;
  filled.pitch = tensors_padded_columns(sums->n);
  filled.slice = tensors_padded_rows(sums->m) * filled.pitch;
  launch_shape shape;
  shape.grid = dim3(static_cast<unsigned>((sums->n + columns - 1) / columns),
                    static_cast<unsigned>(sums->m < 65535 ? sums->m : 65535));
  const int groups = sums->slices < tensors::sums_groups ? sums->slices : tensors::sums_groups;
  shape.block = dim3(static_cast<unsigned>(tensors::sums_lanes * groups));
  shape.dependent = sums->dependent;
  return launch_kernel(stream, shape, tensors::sums_pass, filled);
}

static const load_early early(tensors::sums_pass);
