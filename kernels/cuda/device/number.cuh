// Loading and storing elements of the tensors' types, for all kernels.
#pragma once

#include "../../../proto/gemm.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

__device__ inline float number_load(float value) {
  return value;
}

__device__ inline float number_load(__half value) {
  return __half2float(value);
}

__device__ inline float number_load(__nv_bfloat16 value) {
  return __bfloat162float(value);
}

// Eight elements from x[i] on as f32, zeros from x[k] on. `aligned`: x + i is aligned to 8 elements or 16 bytes, and k
// is a multiple of 8. Not through the read-only cache, whose loads a compiler may move up over the wait for the kernel
// that writes x.
template <typename X>
__device__ inline void number_load8(const X *x, int64_t i, int64_t k, bool aligned, float (&out)[8]) {
  if (aligned && i + 8 <= k) {
    constexpr int words = sizeof(X) / 2;
    union {
      uint4 vectors[words];
      X elements[8];
    } raw;
#pragma unroll
    for (int w = 0; w < words; w++)
      raw.vectors[w] = reinterpret_cast<const uint4 *>(x + i)[w];
#pragma unroll
    for (int j = 0; j < 8; j++)
      out[j] = number_load(raw.elements[j]);
    return;
  }
#pragma unroll
  for (int j = 0; j < 8; j++)
    out[j] = i + j < k ? number_load(x[i + j]) : 0.0f;
}

__device__ inline float number_load_as(const void *data, int64_t i, gemm_type type) {
  if (type == GEMM_F32)
    return static_cast<const float *>(data)[i];
  if (type == GEMM_F16)
    return __half2float(static_cast<const __half *>(data)[i]);
  return __bfloat162float(static_cast<const __nv_bfloat16 *>(data)[i]);
}

__device__ inline void number_store(float *out, float value) {
  *out = value;
}

__device__ inline void number_store(__half *out, float value) {
  *out = __float2half_rn(value);
}

__device__ inline void number_store(__nv_bfloat16 *out, float value) {
  *out = __float2bfloat16_rn(value);
}

// Elements [n, n + 4) of a row, as far as it goes.
template <typename Y> __device__ inline void number_store4(Y *y, int64_t n, int64_t end, const float (&value)[4]) {
  struct alignas(4 * sizeof(Y)) vector {
    Y elements[4];
  } out;
#pragma unroll
  for (int i = 0; i < 4; i++)
    number_store(&out.elements[i], value[i]);
  if (n + 4 <= end && reinterpret_cast<uintptr_t>(y + n) % sizeof out == 0) {
    *reinterpret_cast<vector *>(y + n) = out;
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; i++) {
    if (n + i < end)
      y[n + i] = out.elements[i];
  }
}

__device__ inline void number_store4_as(void *row, int64_t n, int64_t end, gemm_type type, const float (&value)[4]) {
  if (type == GEMM_F32)
    number_store4(static_cast<float *>(row), n, end, value);
  else if (type == GEMM_F16)
    number_store4(static_cast<__half *>(row), n, end, value);
  else
    number_store4(static_cast<__nv_bfloat16 *>(row), n, end, value);
}

__device__ inline void number_store_as(void *data, int64_t i, gemm_type type, float value) {
  if (type == GEMM_F32)
    number_store(static_cast<float *>(data) + i, value);
  else if (type == GEMM_F16)
    number_store(static_cast<__half *>(data) + i, value);
  else
    number_store(static_cast<__nv_bfloat16 *>(data) + i, value);
}

// sum * w_scale * x_scale + bias, in this order: the sum times W's scale is of W's magnitude, whatever x's is.
__device__ inline float number_scaled(float sum, float w_scale, float x_scale, float bias) {
  return fmaf(sum * w_scale, x_scale, bias);
}

// Integer sums are exact; where y is f32 they stay so up to the last rounding, even if the bias cancels most of them.
__device__ inline float number_scaled_exactly(int sum, float w_scale, float x_scale, float bias) {
  return static_cast<float>(
      fma(static_cast<double>(sum) * w_scale, static_cast<double>(x_scale), static_cast<double>(bias)));
}

__device__ inline void number_store(int *out, int value) {
  *out = value;
}
