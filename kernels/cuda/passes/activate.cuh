// Between two products of a sequence: scales and bias are in v already; what follows is the activation, the rounding to
// v's type, and the quantization that the next product's weight asks for, in one pass. The rules are those of
// quantize.cuh.
#pragma once

#include "../device/ptx.cuh"
#include "activate.h"
#include "quantize.cuh"

// v is what the kernel ahead writes: this one may have been started before it has ended.
__device__ inline void activate_wait_for_v() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

// Comparisons that leave a NaN as it is.
__device__ inline float activate_between(float v, float low, float high) {
  return v > high ? high : v < low ? low : v;
}

// The activation of v, times `up` where v is a gate.
__device__ inline float activate_value(float v, float up, bool gated, gemm_activation activation) {
  const bool clamped = activation == GEMM_SWIGLU_CLAMPED;
  if (clamped) {
    v = activate_between(v, -INFINITY, 7.0f);
    up = activate_between(up, -7.0f, 7.0f) + 1.0f;
  }
  if (clamped || activation == GEMM_SILU)
    v = v / (1.0f + expf((clamped ? -1.702f : -1.0f) * v));
  else if (activation == GEMM_GELU)
    v = 0.5f * v * erfcf(v * -0.70710678f);
  else if (activation == GEMM_RELU)
    v = v < 0.0f ? 0.0f : v;
  return gated ? v * up : v;
}

// Eight elements of one row of the result, from column i on; zeros behind the last.
template <typename T>
__device__ inline void activate_row8(const activate_pass &p, int64_t row, int64_t i, bool aligned, float (&out)[8]) {
  const T *v = reinterpret_cast<const T *>(static_cast<const uint8_t *>(p.v) + row * p.v_stride);
  float up[8] = {};
  number_load8(v, i, p.columns, aligned, out);
  if (p.gated)
    number_load8(v + p.columns, i, p.columns, aligned, up);
#pragma unroll
  for (int j = 0; j < 8; j++) {
    T rounded;
    number_store(&rounded, activate_value(out[j], up[j], p.gated, p.activation));
    out[j] = number_load(rounded);
  }
}

template <typename T> __device__ inline bool activate_aligned(const activate_pass &p) {
  return p.columns % 8 == 0 && p.v_stride % 16 == 0;
}

// The largest of all threads of the block, and of the cluster that shares a row.
__device__ inline unsigned activate_most(unsigned most, int ranks) {
  __shared__ unsigned warps[32];
  most = __reduce_max_sync(0xffffffffu, most);
  if (threadIdx.x % 32 == 0)
    warps[threadIdx.x / 32] = most;
  __syncthreads();
  most = __reduce_max_sync(0xffffffffu, threadIdx.x % 32 < blockDim.x / 32 ? warps[threadIdx.x % 32] : 0);
#if __CUDA_ARCH__ >= 900
  __shared__ unsigned block;
  if (ranks > 1) {
    if (threadIdx.x == 0)
      block = most;
    ptx::cluster_arrive();
    ptx::cluster_wait();
    const unsigned rank = threadIdx.x % 32;
    unsigned other = 0;
    if (rank < static_cast<unsigned>(ranks))
      other = ptx::load_cluster(ptx::map_to_rank(ptx::shared_address(&block), rank));
    most = __reduce_max_sync(0xffffffffu, other);
    ptx::cluster_arrive(); // nobody leaves while another reads its number: activate_leave
  }
#endif
  return most;
}

__device__ inline void activate_leave(int ranks) {
#if __CUDA_ARCH__ >= 900
  if (ranks > 1)
    ptx::cluster_wait();
#else
  (void)ranks;
#endif
}

constexpr int activate_threads_most = 512;

// One row by the blocks of one cluster, an equal part each. A thread keeps its first eight elements.
template <typename T, bool e4m3>
__global__ void __launch_bounds__(activate_threads_most) activate_rows(const activate_pass p) {
  quantize_let_reader_start();
  activate_wait_for_v();
  const int ranks = static_cast<int>(gridDim.x);
  const bool aligned = activate_aligned<T>(p);
  const int64_t row = blockIdx.y, step = 8 * static_cast<int64_t>(blockDim.x);
  const int64_t part = (p.k_padded / 8 + ranks - 1) / ranks * 8, begin = blockIdx.x * part;
  const int64_t end = min(begin + part, p.k_padded), first = begin + 8 * static_cast<int64_t>(threadIdx.x);
  float kept[8] = {}, values[8];
  if (first < end)
    activate_row8<T>(p, row, first, aligned, kept);
  unsigned most = quantize_magnitude(kept, 0);
  for (int64_t i = first + step; i < end; i += step) {
    activate_row8<T>(p, row, i, aligned, values);
    most = quantize_magnitude(values, most);
  }
  const float scale = quantize_scale<e4m3>(activate_most(most, ranks));
  uint8_t *codes = static_cast<uint8_t *>(p.out) + row * p.k_padded;
  if (blockIdx.x == 0 && threadIdx.x == 0)
    p.scales[row] = scale;
  if (first < end)
    quantize_store8<e4m3>(codes + first, kept, scale);
  for (int64_t i = first + step; i < end; i += step) {
    activate_row8<T>(p, row, i, aligned, values);
    quantize_store8<e4m3>(codes + i, values, scale);
  }
  activate_leave(ranks);
}

// Half a warp a block of 128, as quantize_blocks.
template <typename T> __global__ void __launch_bounds__(quantize_block_threads) activate_blocks(const activate_pass p) {
  quantize_let_reader_start();
  activate_wait_for_v();
  const int64_t blocks = p.k_padded / GEMM_GROUP;
  const int64_t index = (static_cast<int64_t>(blockIdx.x) * quantize_block_threads + threadIdx.x) / 16;
  const int64_t row = index / blocks, block = index % blocks;
  const int64_t i = block * GEMM_GROUP + threadIdx.x % 16 * 8;
  float values[8] = {};
  if (row < p.m)
    activate_row8<T>(p, row, i, activate_aligned<T>(p), values);
  unsigned most = quantize_magnitude(values, 0);
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2)
    most = max(most, __shfl_xor_sync(0xffffffffu, most, offset));
  const float scale = quantize_scale<true>(most);
  if (row >= p.rows_padded)
    return;
  quantize_store8<true>(static_cast<uint8_t *>(p.out) + row * p.k_padded + i, values, scale);
  if (threadIdx.x % 16 == 0)
    p.scales[block * p.rows_padded + row] = scale;
}

constexpr int activate_values_threads = 128;

// The result as it is, in v's type; perhaps to mapped host memory, in runs of 16 bytes and more a thread.
template <typename T>
__global__ void __launch_bounds__(activate_values_threads) activate_values(const activate_pass p) {
  quantize_let_reader_start();
  activate_wait_for_v();
  const int64_t i = 8 * (static_cast<int64_t>(blockIdx.x) * activate_values_threads + threadIdx.x);
  if (i >= p.k_padded)
    return;
  const bool whole = p.out_stride % 16 == 0 && reinterpret_cast<uintptr_t>(p.out) % 16 == 0 && i + 8 <= p.k_padded;
  for (int64_t row = blockIdx.y; row < p.m; row += gridDim.y) {
    T *out = reinterpret_cast<T *>(static_cast<uint8_t *>(p.out) + row * p.out_stride) + i;
    float values[8];
    activate_row8<T>(p, row, i, activate_aligned<T>(p), values);
    union {
      uint4 vectors[sizeof(T) / 2];
      T elements[8];
    } raw;
#pragma unroll
    for (int j = 0; j < 8; j++)
      number_store(&raw.elements[j], values[j]);
    if (whole) {
#pragma unroll
      for (unsigned w = 0; w < sizeof(T) / 2; w++)
        reinterpret_cast<uint4 *>(out)[w] = raw.vectors[w];
      continue;
    }
#pragma unroll
    for (int j = 0; j < 8; j++)
      if (i + j < p.k_padded)
        out[j] = raw.elements[j];
  }
}
