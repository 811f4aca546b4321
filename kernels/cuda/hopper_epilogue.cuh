// From the sums of a cluster's blocks to y: joined in the order of ranks, scaled, biased, rounded.
#pragma once

#include "hopper_copy.cuh"
#include "hopper_output.cuh"

namespace hopper {

// Sums lie in shared memory as [columns][pitch], a row of W next to the other, with an odd number of 16-byte units so
// that neither side meets bank conflicts.
template <int kGroups> constexpr int sums_pitch = kGroups *group_rows + 4;

// A warpgroup's sums, as the instruction leaves them in registers.
template <int kPitch, typename T, int kRegisters>
__device__ inline void store_sums(const T (&sum)[kRegisters], T *sums, int thread) {
  const int row = thread / 32 * 16 + thread % 32 / 4, column = thread % 4 * 2;
#pragma unroll
  for (int j = 0; j < kRegisters / 4; j++) {
    T *at = sums + (8 * j + column) * kPitch + row;
    at[0] = sum[4 * j];
    at[kPitch] = sum[4 * j + 1];
    at[8] = sum[4 * j + 2];
    at[kPitch + 8] = sum[4 * j + 3];
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
  int m, m_step; // first row, and from row to row; m_step 0: nothing to do
  int at;        // of the four in a row of sums
  float scale[4], bias[4];
};

__device__ inline four four_prepare(const hopper_product &p, int64_t first_row, int rows, int rank, int ranks,
                                    int threads, bool scaled) {
  const int fours = rows / 4, begin = fours * rank / ranks, count = fours * (rank + 1) / ranks - begin;
  const int thread = static_cast<int>(threadIdx.x);
  four f = {};
  if (count == 0 || thread / count >= threads / count)
    return f;
  f.m = thread / count;
  f.at = 4 * (begin + thread % count);
  f.n = first_row + f.at;
  if (f.n >= p.n)
    return f;
  f.m_step = threads / count;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int64_t n = min(f.n + i, p.n - 1);
    f.scale[i] = scaled && p.w_scale ? p.w_scale[n] : 1.0f;
    f.bias[i] = p.bias ? number_load_as(p.bias, n, p.bias_type) : 0.0f;
  }
  return f;
}

// This block's share of the cluster's tile: rows [first_m, first_m + rows) of y. `x_scale`: of these rows.
template <int kPitch, typename T>
__device__ inline void write_tile(const hopper_product &p, const four &f, int64_t first_m, int rows, uint32_t sums,
                                  const float *x_scale, int ranks) {
  constexpr int batch = 4; // rows whose sums are fetched together
  if (f.m_step == 0)
    return;
  for (int first = f.m; first < rows; first += batch * f.m_step) {
    T sum[batch][4] = {};
    for (int rank = 0; rank < ranks; rank++) {
      int4 part[batch];
#pragma unroll
      for (int i = 0; i < batch; i++) {
        const uint32_t at = sums + (min(first + i * f.m_step, rows - 1) * kPitch + f.at) * 4;
        part[i] = ranks == 1 ? ptx::load_shared_int4(at) : ptx::load_cluster_int4(ptx::map_to_rank(at, rank));
      }
#pragma unroll
      for (int i = 0; i < batch; i++)
        add(sum[i], part[i]);
    }
#pragma unroll
    for (int i = 0; i < batch; i++) {
      const int m = first + i * f.m_step;
      if (m < rows)
        write_sums<4>(p, first_m + m, f.n, sum[i], f.scale, x_scale[m], f.bias);
    }
  }
}

} // namespace hopper
