// From the sums of grouped_many/kernel.cuh to y: through shared memory, so that whole runs of y are written.
#pragma once

#include "../hopper/output.cuh"
#include "share.cuh"

namespace grouped_many {

// What belongs to the two rows of W that a lane has sums of in each 64.
struct row_factors {
  float scale[2], bias[2];

  __device__ row_factors(const beside &side, int first) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int row = first + static_cast<int>(threadIdx.x) % 128 / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
      scale[i] = side.w_scale[row + 8 * i];
      bias[i] = side.bias[row + 8 * i];
    }
  }
};

// All of `side`, whose piece is known, by a warp.
__device__ inline void fetch(const hopper_product &p, beside &side) {
  const piece of = side.of;
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int i = lane; i < GROUPED_MANY_COLUMNS; i += 32) {
    const int row = of.first + min(i, of.rows - 1);
    side.x_scale[i] = p.x_scale ? p.x_scale[row] : 1.0f;
    side.pair[i] = p.y_sorted ? row : p.route.pair[row];
  }
#pragma unroll 4
  for (int i = lane; i < GROUPED_MANY_ROWS; i += 32) {
    const int64_t n = min(static_cast<int64_t>(of.row + i), p.n - 1) + of.expert * p.n;
    side.w_scale[i] = p.w_scale ? __ldg(p.w_scale + n) : 1.0f;
    side.bias[i] = p.bias ? number_load_as(p.bias, n, p.bias_type) : 0.0f;
  }
}

__device__ inline void group_sync(int group) {
  ptx::named_barrier_sync(1 + group, 128);
}

__device__ inline uint32_t pair_of(float low, float high, __half) {
  const __half2 pair = __floats2half2_rn(low, high);
  return reinterpret_cast<const uint32_t &>(pair);
}

__device__ inline uint32_t pair_of(float low, float high, __nv_bfloat16) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t &>(pair);
}

// Sixteen columns of sums from number `column` on, scaled, to where they lie in a warpgroup's rows of y.
template <typename Y, typename T>
__device__ inline void put_down(const T *sum, const row_factors &f, const float *x_scale, uint32_t to) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float2 by = *reinterpret_cast<const float2 *>(x_scale + i / 2 * 8 + lane % 4 * 2);
    pairs[i] = pair_of(number_scaled(static_cast<float>(sum[2 * i]), f.scale[i % 2], by.x, f.bias[i % 2]),
                       number_scaled(static_cast<float>(sum[2 * i + 1]), f.scale[i % 2], by.y, f.bias[i % 2]), Y());
  }
  ptx::store_four_matrices_transposed(to + (lane / 16 * 8 + lane % 8) * out_pitch + warp * 32 + lane / 8 % 2 * 16,
                                      pairs);
}

// 16 bytes of a row of y from column n on, as far as it goes.
template <typename Y> __device__ inline void store_vector(uint8_t *row, int64_t n, int64_t end, uint4 vector) {
  Y *const y = reinterpret_cast<Y *>(row) + n;
  if (n + 8 <= end && reinterpret_cast<uintptr_t>(y) % 16 == 0) {
    *reinterpret_cast<uint4 *>(y) = vector;
    return;
  }
  const Y *const elements = reinterpret_cast<const Y *>(&vector);
#pragma unroll
  for (int i = 0; i < 8; i++)
    if (n + i < end)
      y[i] = elements[i];
}

// The tile's columns of 64 rows of W from number `first` of the piece on. Widths are multiples of 8: what is put down
// beyond the last is left there.
template <typename Y, int kWidth, typename T>
__device__ inline void write_half(const hopper_product &p, shared &s, const beside &side, int first, int group,
                                  const T (&sum)[kWidth / 2]) {
  const piece of = side.of;
  const row_factors f(side, first);
  const int thread = threadIdx.x % 128, row = thread / 8;
  const uint32_t out = ptx::shared_address(s.out[group]), from = out + row * out_pitch + thread % 8 * 16;
  const int64_t n = of.row + first + thread % 8 * 8;
#pragma unroll
  for (int begin = 0; begin < kWidth; begin += out_rows) {
    if (begin >= of.rows)
      break;
    group_sync(group); // those before have left shared memory
#pragma unroll
    for (int c = begin; c < begin + out_rows && c < kWidth; c += 16) {
      if constexpr (kWidth % 16 != 0) {
        if (c + 16 > kWidth) {
          T last[8] = {sum[c / 2], sum[c / 2 + 1], sum[c / 2 + 2], sum[c / 2 + 3]};
          put_down<Y>(last, f, side.x_scale + c, out + (c - begin) * out_pitch);
          continue;
        }
      }
      put_down<Y>(sum + c / 2, f, side.x_scale + c, out + (c - begin) * out_pitch);
    }
    group_sync(group);
    const int rows = min(out_rows, of.rows - begin);
#pragma unroll
    for (int i = 0; i < out_rows / 16; i++)
      if (row + 16 * i < rows && n < p.n)
        store_vector<Y>(static_cast<uint8_t *>(p.y) + side.pair[begin + row + 16 * i] * p.y_stride, n, p.n,
                        ptx::load_shared_uint4(from + 16 * i * out_pitch));
  }
}

} // namespace grouped_many
