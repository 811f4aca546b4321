// Sums to y: scaled, biased, rounded, a few neighbouring columns at a time.
#pragma once

#include "../../../device/number.cuh"
#include "config.h"
#include "product.h"

#include <type_traits>

namespace hopper {

__device__ inline uint8_t *row_of_y(const hopper_product &p, int64_t m) {
  return static_cast<uint8_t *>(p.y_rows ? p.y_rows[m] : static_cast<uint8_t *>(p.y) + m * p.y_stride);
}

// `count` values from column n on of a row of y that has `columns`.
template <int kCount, typename Y, typename T>
__device__ inline void write_row(Y *row, int64_t n, int64_t columns, const T (&value)[kCount]) {
  struct alignas(kCount * sizeof(Y)) vector {
    Y elements[kCount];
  } out;
  Y *y = row + n;
#pragma unroll
  for (int i = 0; i < kCount; i++)
    number_store(&out.elements[i], value[i]);
  if (n + kCount <= columns && reinterpret_cast<uintptr_t>(y) % sizeof out == 0) {
    *reinterpret_cast<vector *>(y) = out;
    return;
  }
#pragma unroll
  for (int i = 0; i < kCount; i++) {
    if (n + i < columns)
      y[i] = out.elements[i];
  }
}

// `sum`: of columns n .. n + kCount - 1 of row m, `scale` and `bias` those of these columns.
template <int kCount, typename T>
__device__ inline void write_sums(const hopper_product &p, int64_t m, int64_t n, const T (&sum)[kCount],
                                  const float (&scale)[kCount], float x_scale, const float (&bias)[kCount]) {
  uint8_t *row = row_of_y(p, m);
  if (p.y_type == GEMM_S32) {
    write_row(reinterpret_cast<int *>(row), n, p.n, sum);
    return;
  }
  float value[kCount];
#pragma unroll
  for (int i = 0; i < kCount; i++)
    value[i] = number_scaled(static_cast<float>(sum[i]), scale[i], x_scale, bias[i]);
  if constexpr (std::is_same_v<T, int>) {
    if (p.y_type == GEMM_F32) {
#pragma unroll
      for (int i = 0; i < kCount; i++)
        value[i] = number_scaled_exactly(sum[i], scale[i], x_scale, bias[i]);
    }
  }
  if (p.y_type == GEMM_F32)
    write_row(reinterpret_cast<float *>(row), n, p.n, value);
  else if (p.y_type == GEMM_F16)
    write_row(reinterpret_cast<__half *>(row), n, p.n, value);
  else
    write_row(reinterpret_cast<__nv_bfloat16 *>(row), n, p.n, value);
}

} // namespace hopper
