// From the sums of grouped/kernel.cuh to y.
#pragma once

#include "../hopper/epilogue.cuh"
#include "share.cuh"

namespace grouped {

// What belongs to the two rows of W that a lane has sums of.
struct row_factors {
  float scale[2], bias[2];

  __device__ row_factors(const hopper_product &p, const piece &of, int warp, int lane, bool scaled) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int64_t n = min(static_cast<int64_t>(of.row + warp * 16 + lane / 4 + 8 * i), p.n - 1) + of.expert * p.n;
      scale[i] = scaled && p.w_scale ? __ldg(p.w_scale + n) : 1.0f;
      bias[i] = p.bias ? number_load_as(p.bias, n, p.bias_type) : 0.0f;
    }
  }
};

// Scales of the tile's rows of x and where their rows of y are, by one warpgroup for itself.
template <int kWidth, int kGroups>
__device__ inline void fetch_columns(const hopper_product &p, shared<kGroups> &s, const piece &of, int group,
                                     bool scaled) {
  const int i = threadIdx.x % 128;
  ptx::named_barrier_sync(1 + group, 128); // those of the piece before have been used
  if (i < kWidth) {
    const int row = of.first + min(i, of.rows - 1);
    s.x_scale[group][i] = scaled && p.x_scale ? p.x_scale[row] : 1.0f;
    s.pair[group][i] = p.y_sorted ? row : p.route.pair[row];
  }
  ptx::named_barrier_sync(1 + group, 128);
}

// 16 bytes of a row of y from column n on, as far as it goes.
template <typename Y> __device__ inline void write_vector(uint8_t *row, int64_t n, int64_t columns, int4 vector) {
  constexpr int count = 16 / sizeof(Y);
  Y *const y = reinterpret_cast<Y *>(row) + n;
  if (n + count <= columns && reinterpret_cast<uintptr_t>(y) % 16 == 0) {
    *reinterpret_cast<int4 *>(y) = vector;
    return;
  }
  const Y *const elements = reinterpret_cast<const Y *>(&vector);
  for (int i = 0; i < count && n + i < columns; i++)
    y[i] = elements[i];
}

// A warp's 16 columns of y, eight rows at a time.
template <int kWidth, typename Y, typename T, int kGroups>
__device__ inline void write_as(const hopper_product &p, shared<kGroups> &s, const piece &of, const row_factors &rows,
                                const T (&sum)[kWidth / 2], int group, int warp, int lane) {
  constexpr int per_lane = 16 / sizeof(Y), lanes = 16 / per_lane, pitch = shared<kGroups>::pitch;
  const uint32_t out = ptx::shared_address(s.out[warp]);
  const int row = lane / lanes;
  const int64_t n = of.row + warp * 16 + lane % lanes * per_lane;
#pragma unroll
  for (int e = 0; e < kWidth / 8; e++) {
    if (e * 8 >= of.rows)
      break;
    Y y[4];
#pragma unroll
    for (int k = 0; k < 4; k++)
      y[k] = hopper::finish<Y>(sum[4 * e + k], rows.scale[k / 2], s.x_scale[group][e * 8 + lane % 4 * 2 + k % 2],
                               rows.bias[k / 2]);
    hopper::put_down<pitch>(out, y, lane);
    __syncwarp();
    if (row < 8 && e * 8 + row < of.rows && n < p.n)
      write_vector<Y>(static_cast<uint8_t *>(p.y) + s.pair[group][e * 8 + row] * p.y_stride, n, p.n,
                      ptx::load_shared_int4(out + row * pitch + lane % lanes * 16));
    __syncwarp();
  }
}

template <sums kSums, int kWidth, typename... Rest>
__device__ inline void write_sums(const hopper_product &p, Rest &...rest) {
  if constexpr (kSums == sums::every_128) {
    write_as<kWidth, __nv_bfloat16>(p, rest...);
  } else {
    if (kSums != sums::every_32 && p.y_type == GEMM_BF16)
      write_as<kWidth, __nv_bfloat16>(p, rest...);
    else if (p.y_type == GEMM_F16)
      write_as<kWidth, __half>(p, rest...);
    else if (p.y_type == GEMM_F32)
      write_as<kWidth, float>(p, rest...);
    else if constexpr (kSums == sums::integers)
      write_as<kWidth, int>(p, rest...);
  }
}

} // namespace grouped
