// A warp a few columns of a pair's y: for devices, types and sizes that grouped kernels have nothing for. Sums of INT8
// are exact, others in f32; a block of 128 of K is multiplied by its scales as it comes.
#pragma once

#include "../../device/codes.cuh"
#include "../../device/fp8.cuh"
#include "../../device/number.cuh"
#include "product.h"

#include <type_traits>

namespace pairs {

constexpr int warps = 4, columns = 4, each = 8; // columns of a warp; elements of a lane at a time

template <typename T> struct eight { T element[each]; };

template <typename T> __device__ inline eight<T> load(const void *row, int64_t i, int64_t k) {
  const T *const from = static_cast<const T *>(row) + i;
  eight<T> out;
#pragma unroll
  for (int j = 0; j < each; j++)
    out.element[j] = i + j < k ? from[j] : T();
  return out;
}

__device__ inline float number_of(float value) {
  return value;
}
__device__ inline float number_of(__half value) {
  return __half2float(value);
}
__device__ inline float number_of(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
__device__ inline float number_of(__nv_fp8_e4m3 value) {
  return static_cast<float>(value);
}
__device__ inline int number_of(int8_t value) {
  return value;
}

// Whether W is a struct of device/codes.cuh: packed.
template <typename W, typename = void> constexpr bool is_code = false;
template <typename W> constexpr bool is_code<W, std::void_t<decltype(W::bits)>> = true;

// zero: of packed codes.
template <typename W, typename X, typename Sum>
__device__ inline Sum dot(const void *w, const eight<X> &x, int64_t i, int64_t k, float zero) {
  Sum sum = 0;
  if constexpr (is_code<W>) {
    using word = std::conditional_t<W::bits == 2, uint16_t, uint32_t>;
    const uint32_t codes = static_cast<const word *>(w)[i / each];
#pragma unroll
    for (int j = 0; j < each; j++)
      sum += number_of(x.element[j]) * static_cast<Sum>(W::value(codes, j, zero));
  } else {
    const eight<W> row = load<W>(w, i, k);
#pragma unroll
    for (int j = 0; j < each; j++)
      sum += number_of(x.element[j]) * number_of(row.element[j]);
  }
  return sum;
}

// Which of a packed weight's scales is element i's.
__device__ inline int64_t scale_at(const pairs_product &p, int expert, int64_t n, int64_t i) {
  return (expert * p.n + n) * p.w_scale_stride + (p.w_scale_stride == 1 ? 0 : i / p.group);
}

// By what the sum of a run of eight is multiplied.
template <typename W>
__device__ inline float scale_of(const pairs_product &p, int expert, int64_t n, int64_t row, int64_t i) {
  if constexpr (is_code<W>) {
    return code_scale(p.w_scale, scale_at(p, expert, n, i), p.w_scale_type);
  } else {
    const int64_t block = expert * ((p.n + GEMM_GROUP - 1) / GEMM_GROUP) + n / GEMM_GROUP;
    return static_cast<const float *>(p.w_scale)[block * p.w_scale_stride + i / GEMM_GROUP] *
           p.x_scale[i / GEMM_GROUP * p.x_scale_stride + row];
  }
}

// One element of y from its sum.
template <typename Sum>
__device__ inline void finish(const pairs_product &p, int expert, int64_t row, int64_t pair, int64_t n, Sum sum) {
  const bool rows = p.group == 0 && (p.scale == GEMM_SCALE_ROW || p.scale == GEMM_SCALE_ONE);
  const float *const scales = rows ? static_cast<const float *>(p.w_scale) : p.w_factors;
  const float w_scale = scales ? scales[expert * p.n + n] : 1.0f;
  const float x_scale = p.x_scale && p.scale != GEMM_SCALE_BLOCK ? p.x_scale[row] : 1.0f;
  const float bias = p.bias ? number_load_as(p.bias, expert * p.n + n, p.bias_type) : 0.0f;
  float value = number_scaled(static_cast<float>(sum), w_scale, x_scale, bias);
  if constexpr (std::is_same_v<Sum, int>)
    if (p.y_type == GEMM_F32)
      value = number_scaled_exactly(sum, w_scale, x_scale, bias);
  number_store_as(static_cast<uint8_t *>(p.y) + (p.y_sorted ? row : pair) * p.y_stride, n, p.y_type, value);
}

// kScaled: sums of a run are scaled before they are added up; of packed codes all are, and f32 holds those of INT8 x
// exactly where zero points are integers.
template <typename W, typename X, bool kScaled>
__global__ void __launch_bounds__(32 * warps) run(const __grid_constant__ pairs_product p) {
  using Sum = std::conditional_t<std::is_same_v<X, int8_t> && !is_code<W>, int, float>;
  using Total = std::conditional_t<kScaled, float, Sum>;
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
  const int64_t row = blockIdx.y, first = (static_cast<int64_t>(blockIdx.x) * warps + threadIdx.x / 32) * columns;
  if (row >= p.route.counts->rows || first >= p.n)
    return;
  const int lane = threadIdx.x % 32, pair = p.route.pair[row], expert = p.ids[pair];
  const uint8_t *const w = static_cast<const uint8_t *>(p.w) + expert * p.n * p.w_stride;
  const uint8_t *const x = static_cast<const uint8_t *>(p.x) + row * p.x_stride;
  Total sum[columns] = {};
  for (int64_t i = lane * each; i < p.k; i += 32 * each) {
    const eight<X> some = load<X>(x, i, p.k);
#pragma unroll
    for (int c = 0; c < columns; c++) {
      const int64_t n = min(first + c, p.n - 1);
      float zero = 0;
      if constexpr (is_code<W>)
        zero = p.w_zeros ? code_zero(p.w_zeros, scale_at(p, expert, n, i), p.w_zeros_f16) : W::zero;
      const Sum part = dot<W, X, Sum>(w + n * p.w_stride, some, i, p.k, zero);
      if constexpr (kScaled)
        sum[c] = fmaf(static_cast<float>(part), scale_of<W>(p, expert, n, row, i), sum[c]);
      else
        sum[c] += part;
    }
  }
#pragma unroll
  for (int c = 0; c < columns; c++) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
      sum[c] += __shfl_xor_sync(0xffffffffu, sum[c], offset);
  }
#pragma unroll
  for (int c = 0; c < columns; c++)
    if (lane == c && first + c < p.n)
      finish(p, expert, row, pair, first + c, sum[c]);
}

} // namespace pairs
