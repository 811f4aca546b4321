// From the sums of a piece to y: int2_many/sums.cuh, to rows that a list names and from biases that begin with an
// expert.
#pragma once

#include "../int2_many/sums.cuh"
#include "share.cuh"

namespace grouped_int2_many {

using int2_many::group_sync, int2_many::out_pitch, int2_many::out_rows, int2_many::pair_of, int2_many::store_eight,
    int2_many::sums_by;

// Where y of a piece's columns is.
struct rows_of_y {
  const tiles_product &p;
  const int *rows; // in shared memory
  int all;

  __device__ int count(int column, int most) const {
    return min(most, all - column);
  }
  __device__ uint8_t *row(int column) const {
    return static_cast<uint8_t *>(p.y) + rows[column] * p.y_stride;
  }
};

// f32, of rows of W from first_n on: eight columns of sums at a time through shared memory, so that whole runs of y are
// written. `bias_by`: where the bias of row 0 is.
template <typename Shape, int kEights>
__device__ inline void write_f32(const tiles_product &p, int2_many::shared<Shape> &s, int64_t first_n, int64_t bias_by,
                                 const rows_of_y &to_rows, int group, const float (&sum)[4 * kEights]) {
  constexpr int pitch = INT2_BLOCK_ROWS + 4;
  static_assert(2 * 8 * pitch * sizeof(float) <= sizeof s.out[0], "two times eight columns");
  const float by = sums_by<Shape>(p);
  const int thread = static_cast<int>(ptx::thread()) % 128, lane = thread % 32, column = thread / 16,
            four = thread % 16 * 4;
  const int64_t n = first_n + four;
  float bias[4] = {};
  if (p.bias && n < p.n)
#pragma unroll
    for (int j = 0; j < 4; j++)
      bias[j] = number_load_as(p.bias, bias_by + min(n + j, p.n - 1), p.bias_type);
#pragma unroll
  for (int t = 0; t < kEights; t++) {
    float *const out = reinterpret_cast<float *>(s.out[group]) + t % 2 * 8 * pitch;
    float *const to = out + lane % 4 * 2 * pitch + thread / 32 * INT2_UNIT_ROWS + lane / 4;
    to[0] = sum[4 * t];
    to[pitch] = sum[4 * t + 1];
    to[8] = sum[4 * t + 2];
    to[pitch + 8] = sum[4 * t + 3];
    group_sync(group);
    const int at = 8 * t + column;
    if (to_rows.count(at, 1) < 1 || n >= p.n)
      continue;
    const float4 found = *reinterpret_cast<const float4 *>(out + column * pitch + four);
    const float value[4] = {fmaf(found.x, by, bias[0]), fmaf(found.y, by, bias[1]), fmaf(found.z, by, bias[2]),
                            fmaf(found.w, by, bias[3])};
    number_store4(reinterpret_cast<float *>(to_rows.row(at)), n, p.n, value);
  }
}

// The same of f16 and bf16: up to out_rows rows of y at a time, transposed on their way to shared memory, and from
// there in runs of 16 bytes a lane.
template <typename Shape, int kEights>
__device__ inline void write_16(const tiles_product &p, int2_many::shared<Shape> &s, int64_t first_n, int64_t bias_by,
                                const rows_of_y &to_rows, int group, const float (&sum)[4 * kEights]) {
  constexpr int eights = out_rows / 8 < kEights ? out_rows / 8 : kEights;
  const int thread = static_cast<int>(ptx::thread()) % 128, warp = thread / 32, lane = thread % 32, part = thread % 8;
  const bool f16 = p.y_type == GEMM_F16;
  const float by = sums_by<Shape>(p);
  float bias[2] = {};
  if (p.bias)
#pragma unroll
    for (int j = 0; j < 2; j++)
      bias[j] = number_load_as(p.bias, bias_by + min(first_n + warp * INT2_UNIT_ROWS + lane / 4 + 8 * j, p.n - 1),
                               p.bias_type);
  const uint32_t out = ptx::shared_address(s.out[group]);
  const uint32_t to = out + lane % 8 * out_pitch + warp * INT2_UNIT_ROWS * 2 + lane / 8 % 2 * 16;
#pragma unroll
  for (int first = 0; first < kEights; first += eights) {
    if (first > 0)
      group_sync(group);
#pragma unroll
    for (int t = 0; t < eights && first + t < kEights; t++) {
      const int from = 4 * (first + t);
      const uint32_t pairs[2] = {pair_of(fmaf(sum[from], by, bias[0]), fmaf(sum[from + 1], by, bias[0]), f16),
                                 pair_of(fmaf(sum[from + 2], by, bias[1]), fmaf(sum[from + 3], by, bias[1]), f16)};
      ptx::store_matrices_transposed(to + t * 8 * out_pitch, pairs);
    }
    group_sync(group);
    const int64_t n = first_n + part * 8;
    const int column = 8 * first, rows = to_rows.count(column, 8 * min(eights, kEights - first));
    if (n >= p.n)
      continue;
#pragma unroll 1
    for (int row = thread / 8; row < rows; row += 16)
      store_eight(to_rows.row(column + row), n, p.n, ptx::load_shared_uint4(out + row * out_pitch + part * 16));
  }
}

// Times the scales of rows of x from the first on.
template <int kEights>
__device__ inline void scale_by_x(const tiles_product &p, int64_t row, float (&sum)[4 * kEights]) {
  ptx::wait_for_previous_grid();
  const int64_t first = row + ptx::thread() % 4 * 2;
#pragma unroll
  for (int t = 0; t < kEights; t++) {
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const float scale = p.x_scale[min(first + 8 * t + j, p.m - 1)];
      sum[4 * t + j] *= scale, sum[4 * t + 2 + j] *= scale;
    }
  }
}

} // namespace grouped_int2_many
