// y = x * W^T + bias with codes of 2 or 4 bits, in f32 arithmetic: f32 x of any magnitude and elements that are not
// finite come out as IEEE arithmetic has them. Sums of INT8 x are exact before they are scaled.
//
// A warp computes `rows` x `columns` of y. A lane has 16 codes of a row at a time, of one group, a warp 512, and reads
// every code once for `rows` rows of x. Warps of the same y have a slice of K each (config.h).
#pragma once

#include "../../device/codes.cuh"
#include "../../device/number.cuh"
#include "kernel.cuh"

constexpr int packed_threads = 128;
constexpr int packed_codes = 16;               // a lane and step
constexpr int packed_step = 32 * packed_codes; // of K, a warp
static_assert(PLAIN_SLICE_ALIGN % packed_step == 0, "slices are whole steps");

__device__ inline void packed_write(const packed_product &p, int64_t m, int64_t n, float sum) {
  const float bias = p.bias ? number_load_as(p.bias, n, p.bias_type) : 0.0f;
  number_store_as(static_cast<uint8_t *>(p.y) + m * p.y_stride, n, p.y_type,
                  number_scaled(sum, 1.0f, p.x_scale ? p.x_scale[m] : 1.0f, bias));
}

// A lane's codes of a row.
template <typename Code> using packed_words = std::conditional_t<Code::bits == 2, unsigned, uint2>;

template <typename Code> __device__ inline unsigned packed_word(const packed_words<Code> &words, int index) {
  if constexpr (Code::bits == 2)
    return words;
  else
    return index < packed_codes / 2 ? words.x : words.y;
}

template <typename X>
__device__ inline void packed_load(const X *x, int64_t i, int64_t k, bool aligned, float (&out)[packed_codes]) {
  float half[8];
#pragma unroll
  for (int part = 0; part < 2; part++) {
    number_load8(x, i + 8 * part, k, aligned, half);
#pragma unroll
    for (int j = 0; j < 8; j++)
      out[8 * part + j] = half[j];
  }
}

// Quantized rows: zeros behind k, whole words.
__device__ inline void packed_load(const int8_t *x, int64_t i, int64_t, bool, float (&out)[packed_codes]) {
  const int4 vector = __ldg(reinterpret_cast<const int4 *>(x + i));
  const int words[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
  for (int j = 0; j < packed_codes; j++)
    out[j] = static_cast<float>(words[j / 4] << (24 - j % 4 * 8) >> 24);
}

template <typename Code, typename X, int rows, int columns>
__global__ void __launch_bounds__(packed_threads) packed_products(const packed_product p) {
  const int lane = threadIdx.x % 32;
  const int64_t first_n = (static_cast<int64_t>(blockIdx.x) * (packed_threads / 32) + threadIdx.x / 32) * columns;
  const int64_t first_m = static_cast<int64_t>(blockIdx.y) * rows;
  if (first_n >= p.n)
    return;
  const bool aligned = p.k % 8 == 0;
  const int64_t slice = blockIdx.z, first_k = slice * p.cut.slice_k, end_k = min(first_k + p.cut.slice_k, p.k);
  float sums[rows][columns] = {};
  // Rows behind the last are computed from the last and not written.
  for (int64_t i = first_k + lane * packed_codes; i < end_k; i += packed_step) {
    float x[rows][packed_codes];
    packed_words<Code> words[columns];
    float scales[columns], zeros[columns];
#pragma unroll
    for (int c = 0; c < columns; c++) {
      const int64_t n = min(first_n + c, p.n - 1);
      words[c] =
          __ldg(reinterpret_cast<const packed_words<Code> *>(static_cast<const uint8_t *>(p.codes) + n * p.row_bytes) +
                i / packed_codes);
      const int64_t at = n * p.scale_stride + (p.scale_stride == 1 ? 0 : i / p.group);
      scales[c] = code_scale(p.scales, at, p.scale_type);
      if (p.factors)
        scales[c] *= p.factors[n];
      zeros[c] = p.zeros ? code_zero(p.zeros, at, p.zeros_f16) : Code::zero;
    }
#pragma unroll
    for (int r = 0; r < rows; r++)
      packed_load(static_cast<const X *>(p.x) + min(first_m + r, p.m - 1) * p.x_stride, i, p.k, aligned, x[r]);
#pragma unroll
    for (int c = 0; c < columns; c++) {
      float part[rows] = {};
#pragma unroll
      for (int j = 0; j < packed_codes; j++) {
        const float w = Code::value(packed_word<Code>(words[c], j), j % (32 / Code::bits), zeros[c]);
#pragma unroll
        for (int r = 0; r < rows; r++)
          part[r] = fmaf(x[r][j], w, part[r]);
      }
#pragma unroll
      for (int r = 0; r < rows; r++)
        sums[r][c] = fmaf(part[r], scales[c], sums[r][c]);
    }
  }
#pragma unroll
  for (int r = 0; r < rows; r++) {
#pragma unroll
    for (int c = 0; c < columns; c++) {
#pragma unroll
      for (int offset = 16; offset > 0; offset /= 2)
        sums[r][c] += __shfl_xor_sync(0xffffffffu, sums[r][c], offset);
    }
  }
  // A lane an element: all that follows is there once.
  float own = 0.0f;
#pragma unroll
  for (int i = 0; i < rows * columns; i++)
    own = lane == i ? sums[i / columns][i % columns] : own;
  const int64_t m = first_m + lane / columns, n = first_n + lane % columns;
  if (lane >= rows * columns || m >= p.m || n >= p.n)
    return;
  if (p.cut.slices > 1)
    p.parts[(slice * p.m + m) * p.n + n] = own;
  else
    packed_write(p, m, n, own);
}

__global__ void __launch_bounds__(plain_adders) packed_join(const packed_product p) {
  const int64_t elements = p.m * p.n, i = static_cast<int64_t>(blockIdx.x) * plain_adders + threadIdx.x;
  if (i < elements)
    packed_write(p, i / p.n, i % p.n, plain_add<float>(p.parts, i, elements, p.cut.slices));
}
