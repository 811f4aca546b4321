// The pass of product.h's struct tensors_sums: slices are added up in their order, so that the same request gives the
// same bits.
#pragma once

#include "../device/number.cuh"
#include "../device/ptx.cuh"
#include "product.h"

namespace tensors {

constexpr int sums_lanes = 32;  // a lane: 4 columns
constexpr int sums_groups = 8;  // of lanes at most; a group: some of the slices
constexpr int sums_at_once = 8; // slices of a group whose loads are under way together
constexpr int sums_few = 256;   // blocks of a launch, up to which the next grid may start ahead of its end

__device__ inline void add4(float4 &to, const float4 &value) {
  to.x += value.x;
  to.y += value.y;
  to.z += value.z;
  to.w += value.w;
}

// What an element becomes.
__device__ inline void finish(const tensors_sums &s, int64_t row, int64_t column, float value) {
  if (s.carry && !s.first)
    value += s.carry[row * s.n + column];
  if (!s.last) {
    s.carry[row * s.n + column] = value;
    return;
  }
  void *y = static_cast<uint8_t *>(s.y) + row * s.y_stride;
  if (s.bias)
    value += number_load_as(s.bias, column, s.bias_type);
  if (s.add)
    value += number_load_as(y, column, s.y_type);
  number_store_as(y, column, s.y_type, value);
}

// A block: 128 columns of a row.
__global__ void __launch_bounds__(sums_lanes *sums_groups) sums_pass(const tensors_sums s) {
  __shared__ float4 parts[sums_groups][sums_lanes];
#if __CUDA_ARCH__ >= 900
  if (s.dependent)
    ptx::wait_for_previous_grid();
#endif
  const int lane = threadIdx.x % sums_lanes, group = threadIdx.x / sums_lanes, groups = blockDim.x / sums_lanes;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * sums_lanes * 4, column = first + lane * 4;
  for (int64_t row = blockIdx.y; row < s.m; row += gridDim.y) {
    float4 sum = make_float4(0, 0, 0, 0);
    if (column < s.n) {
      const int64_t stride = groups * s.slice;
      const float *from = s.partials + group * s.slice + row * s.pitch + column;
      for (int left = (s.slices - group + groups - 1) / groups; left > 0; left -= sums_at_once) {
        float4 part[sums_at_once];
#pragma unroll
        for (int i = 0; i < sums_at_once; i++)
          if (i < left)
            part[i] = *reinterpret_cast<const float4 *>(from + i * stride);
#pragma unroll
        for (int i = 0; i < sums_at_once; i++)
          if (i < left)
            add4(sum, part[i]);
        from += sums_at_once * stride;
      }
    }
    parts[group][lane] = sum;
    __syncthreads();
#if __CUDA_ARCH__ >= 900
    if (gridDim.x * gridDim.y <= sums_few)
      ptx::let_next_grid_start();
#endif
    for (int i = threadIdx.x; i < 4 * sums_lanes; i += blockDim.x) {
      const float *part = reinterpret_cast<const float *>(parts[0]) + i;
      float value = part[0];
      for (int j = 1; j < groups; j++)
        value += part[4 * sums_lanes * j];
      if (first + i < s.n)
        finish(s, row, first + i, value);
    }
    __syncthreads();
  }
}

} // namespace tensors
