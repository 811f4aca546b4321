// From the sums of a cluster's blocks to y: joined in the order of ranks, scaled, biased, rounded.
#pragma once

#include "hopper_copy.cuh"
#include "hopper_output.cuh"

namespace hopper {

// Sums lie in shared memory as [columns][pitch], a row of W next to the other, with an odd number of 16-byte units so
// that neither side meets bank conflicts.
__device__ inline int sums_pitch() {
  return static_cast<int>(blockDim.x) / 128 * group_rows + 4;
}

// A warpgroup's sums, as the instruction leaves them in registers.
template <typename T, int kRegisters>
__device__ inline void store_sums(const T (&sum)[kRegisters], T *sums, int pitch, int thread) {
  const int row = thread / 32 * 16 + thread % 32 / 4, column = thread % 4 * 2;
#pragma unroll
  for (int j = 0; j < kRegisters / 4; j++) {
    T *at = sums + (8 * j + column) * pitch + row;
    at[0] = sum[4 * j];
    at[pitch] = sum[4 * j + 1];
    at[8] = sum[4 * j + 2];
    at[pitch + 8] = sum[4 * j + 3];
  }
}

__device__ inline float as_sum(int bits, float) {
  return __int_as_float(bits);
}

__device__ inline int as_sum(int bits, int) {
  return bits;
}

template <typename T> __device__ inline void add(T (&sum)[4], int4 part) {
  sum[0] += as_sum(part.x, T());
  sum[1] += as_sum(part.y, T());
  sum[2] += as_sum(part.z, T());
  sum[3] += as_sum(part.w, T());
}

// Four neighbouring columns of y that a thread writes in some of its rows, and what of them does not depend on x:
// fetched while W streams.
struct four {
  int64_t n;     // first column
  int m, m_step; // first row, and from row to row
  int at;        // of the four in a row of sums
  bool there;
  float scale[4], bias[4];

  // A row of y takes 1 << shift threads, of which `count`, from four `begin` of the block's on, have work.
  __device__ four(const hopper_product &p, int64_t first_row, int begin, int count, int shift) {
    const int thread = static_cast<int>(threadIdx.x), place = thread & ((1 << shift) - 1);
    m = thread >> shift;
    m_step = static_cast<int>(blockDim.x) >> shift;
    at = 4 * (begin + place);
    n = first_row + at;
    there = place < count && n < p.n;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      scale[i] = 1.0f;
      bias[i] = 0.0f;
    }
  }

  __device__ void fetch(const hopper_product &p, bool scaled) {
    if (!there)
      return;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int64_t column = min(n + i, p.n - 1);
      if (scaled && p.w_scale)
        scale[i] = p.w_scale[column];
      if (p.bias)
        bias[i] = number_load_as(p.bias, column, p.bias_type);
    }
  }
};

// One element of y.
template <typename Y, typename T> __device__ inline Y finish(T sum, float w_scale, float x_scale, float bias) {
  Y out;
  if constexpr (std::is_same_v<Y, int>)
    out = static_cast<int>(sum);
  else if constexpr (std::is_same_v<Y, float> && std::is_same_v<T, int>)
    out = number_scaled_exactly(sum, w_scale, x_scale, bias);
  else
    number_store(&out, number_scaled(static_cast<float>(sum), w_scale, x_scale, bias));
  return out;
}

// This block's share of the cluster's tile: rows [first_m, first_m + rows) of y, as Y. `x_scale`: of these rows.
template <int kColumns, typename Y, typename T>
__device__ inline void write_tile_as(const hopper_product &p, const four &f, int64_t first_m, int rows, uint32_t sums,
                                     int pitch, const float *x_scale, int ranks) {
  constexpr int batch =
      kColumns >= 32 ? 4 : kColumns / 8; // rows whose sums are fetched together: no more than there are
  struct alignas(4 * sizeof(Y)) vector {
    Y elements[4];
  };
#pragma unroll 1
  for (int first = f.m; first < rows; first += batch * f.m_step) {
    T sum[batch][4] = {};
#pragma unroll 2
    for (int rank = 0; rank < ranks; rank++) {
      int4 part[batch];
#pragma unroll
      for (int i = 0; i < batch; i++) {
        const uint32_t at = sums + (min(first + i * f.m_step, rows - 1) * pitch + f.at) * 4;
        part[i] = ranks == 1 ? ptx::load_shared_int4(at) : ptx::load_cluster_int4(ptx::map_to_rank(at, rank));
      }
#pragma unroll
      for (int i = 0; i < batch; i++)
        add(sum[i], part[i]);
    }
#pragma unroll
    for (int i = 0; i < batch; i++) {
      const int m = first + i * f.m_step;
      if (m >= rows)
        break;
      vector out;
#pragma unroll
      for (int j = 0; j < 4; j++)
        out.elements[j] = finish<Y>(sum[i][j], f.scale[j], x_scale[m], f.bias[j]);
      Y *y = reinterpret_cast<Y *>(row_of_y(p, first_m + m)) + f.n;
      if (f.n + 4 <= p.n && reinterpret_cast<uintptr_t>(y) % sizeof out == 0) {
        *reinterpret_cast<vector *>(y) = out;
        continue;
      }
#pragma unroll
      for (int j = 0; j < 4; j++) {
        if (f.n + j < p.n)
          y[j] = out.elements[j];
      }
    }
  }
}

template <int kColumns, typename T>
__device__ inline void write_tile(const hopper_product &p, const four &f, int64_t first_m, int rows, uint32_t sums,
                                  int pitch, const float *x_scale, int ranks) {
  if (!f.there)
    return;
  if (p.y_type == GEMM_BF16)
    write_tile_as<kColumns, __nv_bfloat16, T>(p, f, first_m, rows, sums, pitch, x_scale, ranks);
  else if (p.y_type == GEMM_F16)
    write_tile_as<kColumns, __half, T>(p, f, first_m, rows, sums, pitch, x_scale, ranks);
  else if (p.y_type == GEMM_F32)
    write_tile_as<kColumns, float, T>(p, f, first_m, rows, sums, pitch, x_scale, ranks);
  else if constexpr (std::is_same_v<T, int>)
    write_tile_as<kColumns, int, T>(p, f, first_m, rows, sums, pitch, x_scale, ranks);
}

} // namespace hopper
