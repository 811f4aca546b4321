// Zero points of f16. W's tiles have the nearest code z' of each in its place, with which other families make sums;
// here y = sums - x_scale * sum over groups of scale * (z - z') * (sum of the group's x) + bias. Neither part is larger
// than twice what c - z would have added: z - z' is at most a half where z is between codes, and else of the other
// sign.
#pragma once

#include "../../../device/number.cuh"
#include "product.h"

namespace int4_zeros {

constexpr int threads = 128, warps = threads / 32;
constexpr int columns = 32; // of y in a block, whose warps share out groups
constexpr int chunk = 64;   // groups whose sums of x are in shared memory at a time

__device__ inline float element(const void *row, int64_t i, gemm_type type) {
  return type == GEMM_INT8 ? static_cast<float>(static_cast<const int8_t *>(row)[i]) : number_load_as(row, i, type);
}

// A warp a group of a row of x.
__global__ void __launch_bounds__(threads) sum_x(const int4_zeros_product p) {
  const int64_t which = static_cast<int64_t>(blockIdx.x) * warps + threadIdx.x / 32, m = which / p.groups;
  if (m >= p.m)
    return;
  const int64_t first = which % p.groups * p.group, end = min(first + p.group, p.k);
  const uint8_t *const row = static_cast<const uint8_t *>(p.x) + m * p.x_stride;
  float sum = 0.0f;
  for (int64_t i = first + threadIdx.x % 32; i < end; i += 32)
    sum += element(row, i, p.x_type);
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (threadIdx.x % 32 == 0)
    p.x_sums[which] = sum;
}

// scale * (z - z').
__device__ inline float rest_of(uint32_t pair, bool bf16) {
  const float scale = bf16 ? __uint_as_float(pair << 16) : __half2float(__ushort_as_half(pair & 0xffff));
  return scale * __half2float(__ushort_as_half(pair >> 16));
}

template <int kRows> __global__ void __launch_bounds__(threads) finish(const int4_zeros_product p) {
  __shared__ float x[chunk][kRows], part[warps][kRows][columns];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t n = static_cast<int64_t>(blockIdx.x) * columns + lane, m = static_cast<int64_t>(blockIdx.y) * kRows;
  const uint32_t *const rests = p.rests + min(n, p.n - 1);
  float sum[kRows] = {};
  for (int64_t begin = 0; begin < p.groups; begin += chunk) {
    const int count = static_cast<int>(min(p.groups - begin, static_cast<int64_t>(chunk)));
    for (int i = threadIdx.x; i < kRows * count; i += threads) {
      const int row = i / count, g = i % count;
      x[g][row] = m + row < p.m ? p.x_sums[(m + row) * p.groups + begin + g] : 0.0f;
    }
    __syncthreads();
#pragma unroll 4
    for (int g = warp; g < count; g += warps) {
      const float rest = rest_of(__ldg(rests + (begin + g) * p.rests_stride), p.bf16_scales);
#pragma unroll
      for (int row = 0; row < kRows; row++)
        sum[row] = fmaf(rest, x[g][row], sum[row]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int row = 0; row < kRows; row++)
    part[warp][row][lane] = sum[row];
  __syncthreads();
  const float bias = p.bias && n < p.n ? number_load_as(p.bias, n, p.bias_type) : 0.0f;
  for (int row = warp; row < kRows && m + row < p.m && n < p.n; row += warps) {
    float less = 0.0f;
#pragma unroll
    for (int i = 0; i < warps; i++)
      less += part[i][row][lane];
    const float scale = p.x_scale ? p.x_scale[m + row] : 1.0f;
    number_store_as(static_cast<uint8_t *>(p.y) + (m + row) * p.y_stride, n, p.y_type,
                    fmaf(-less, scale, p.sums[(m + row) * p.n + n]) + bias);
  }
}

} // namespace int4_zeros
