// Activations to INT8 and E4M3. The rules are the contract's: s = absmax / 127 or / 448, zero where below 2^-126, NaN
// where an element is not finite; codes are x / s by IEEE division, nearest even. They must be the same bits as on
// every other backend.
#pragma once

#include "launch.h"
#include "number.cuh"

// What reads the codes may start and fetch its weights, if it was launched as a dependent of this kernel.
__device__ inline void quantize_let_reader_start() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// Magnitudes are compared as integers: there infinity and NaN are above every number, so that none is lost.
__device__ inline unsigned quantize_magnitude(const float (&values)[8], unsigned most) {
#pragma unroll
  for (int j = 0; j < 8; j++)
    most = max(most, __float_as_uint(values[j]) & 0x7fffffffu);
  return most;
}

template <bool e4m3> __device__ inline float quantize_scale(unsigned magnitude) {
  if (magnitude >= 0x7f800000u)
    return __uint_as_float(0x7fffffffu);
  float scale = __fdiv_rn(__uint_as_float(magnitude), e4m3 ? 448.0f : 127.0f);
  return scale < 0x1p-126f ? 0.0f : scale;
}

template <bool e4m3> __device__ inline uint8_t quantize_code(float value, float scale) {
  if (!(scale > 0.0f)) // zero or NaN
    return 0;
  float quotient = __fdiv_rn(value, scale);
  if (e4m3)
    return __nv_cvt_float_to_fp8(quotient, __NV_SATFINITE, __NV_E4M3);
  return static_cast<uint8_t>(static_cast<int8_t>(max(-127, min(127, __float2int_rn(quotient)))));
}

template <bool e4m3> __device__ inline void quantize_store8(uint8_t *out, const float (&values)[8], float scale) {
  uint2 packed = {0, 0};
#pragma unroll
  for (int j = 0; j < 4; j++) {
    packed.x |= static_cast<unsigned>(quantize_code<e4m3>(values[j], scale)) << (8 * j);
    packed.y |= static_cast<unsigned>(quantize_code<e4m3>(values[j + 4], scale)) << (8 * j);
  }
  *reinterpret_cast<uint2 *>(out) = packed;
}

constexpr int quantize_threads_most = 1024;

// One row by one block. A thread keeps its first eight elements: rows of up to 8192 are read once, longer ones twice.
template <typename X, bool e4m3>
__device__ inline void quantize_row(const X *from, int64_t row, int64_t k, int64_t k_padded, uint8_t *codes,
                                    float *scales) {
  __shared__ unsigned warps[32];
  const bool aligned = k % 8 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0;
  const int64_t first = 8 * static_cast<int64_t>(threadIdx.x), step = 8 * static_cast<int64_t>(blockDim.x);
  float kept[8], values[8];
  number_load8(from, first, k, aligned, kept);
  unsigned most = quantize_magnitude(kept, 0);
  for (int64_t i = first + step; i < k; i += step) {
    number_load8(from, i, k, aligned, values);
    most = quantize_magnitude(values, most);
  }
  most = __reduce_max_sync(0xffffffffu, most);
  if (threadIdx.x % 32 == 0)
    warps[threadIdx.x / 32] = most;
  __syncthreads();
  most = __reduce_max_sync(0xffffffffu, threadIdx.x % 32 < blockDim.x / 32 ? warps[threadIdx.x % 32] : 0);
  const float scale = quantize_scale<e4m3>(most);
  if (threadIdx.x == 0)
    scales[row] = scale;
  if (first < k_padded)
    quantize_store8<e4m3>(codes + row * k_padded + first, kept, scale);
  for (int64_t i = first + step; i < k_padded; i += step) {
    number_load8(from, i, k, aligned, values);
    quantize_store8<e4m3>(codes + row * k_padded + i, values, scale);
  }
}

template <typename X, bool e4m3>
__global__ void __launch_bounds__(quantize_threads_most)
    quantize_rows(const X *x, int64_t k, int64_t k_padded, uint8_t *codes, float *scales) {
  quantize_let_reader_start();
  quantize_row<X, e4m3>(x + blockIdx.x * k, blockIdx.x, k, k_padded, codes, scales);
}

template <typename X, bool e4m3>
__global__ void __launch_bounds__(quantize_threads_most)
    quantize_table(const row_table x, int64_t k, int64_t k_padded, uint8_t *codes, float *scales, const row_table y,
                   void **y_rows) {
  quantize_let_reader_start();
  if (y_rows != nullptr && threadIdx.x == 0)
    y_rows[blockIdx.x] = const_cast<void *>(y.rows[blockIdx.x]);
  quantize_row<X, e4m3>(static_cast<const X *>(x.rows[blockIdx.x]), blockIdx.x, k, k_padded, codes, scales);
}

constexpr int quantize_block_threads = 256;

// Half a warp a block of 128, eight elements a thread.
template <typename X>
__global__ void __launch_bounds__(quantize_block_threads)
    quantize_blocks(const X *x, int64_t rows, int64_t rows_padded, int64_t k, int64_t k_padded, uint8_t *codes,
                    float *scales) {
  quantize_let_reader_start();
  const int64_t blocks = k_padded / GEMM_GROUP;
  const int64_t index = (static_cast<int64_t>(blockIdx.x) * quantize_block_threads + threadIdx.x) / 16;
  const int64_t row = index / blocks, block = index % blocks;
  const int64_t i = block * GEMM_GROUP + threadIdx.x % 16 * 8;
  float values[8] = {};
  if (row < rows)
    number_load8(x + row * k, i, k, k % 8 == 0, values);
  unsigned most = quantize_magnitude(values, 0);
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2)
    most = max(most, __shfl_xor_sync(0xffffffffu, most, offset));
  const float scale = quantize_scale<true>(most);
  if (row >= rows_padded)
    return;
  quantize_store8<true>(codes + row * k_padded + i, values, scale);
  if (threadIdx.x % 16 == 0)
    scales[block * rows_padded + row] = scale;
}
