// Activations to INT8 and E4M3. The rules are the contract's: s = absmax / 127 or / 448, zero where below 2^-126, NaN
// where an element is not finite; codes are x / s by IEEE division, nearest even. They must be the same bits as on
// every other backend.
#pragma once

#include "../device/e4m3.cuh"
#include "../device/number.cuh"
#include "quantize.h"

#include <type_traits>

// What reads the codes may start and fetch its weights, if it was launched as a dependent of this kernel.
__device__ inline void quantize_let_reader_start() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// x may be what the kernel ahead writes, where this one was launched as a dependent of it. Every block waits: whoever
// comes behind it relies on its end for that of all ahead.
__device__ inline void quantize_wait_for_x() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

// Eight elements as they are in memory.
template <typename X> struct quantize_eight { uint4 words[sizeof(X) / 2]; };

// From x[i] on, zeros from x[k] on. `aligned`: x + i is aligned to 16 bytes, and k is a multiple of 8.
template <typename X> __device__ inline quantize_eight<X> quantize_load8(const X *x, int i, int k, bool aligned) {
  union {
    quantize_eight<X> eight;
    X elements[8];
  } raw = {};
  if (aligned) {
    if (i < k) {
#pragma unroll
      for (int w = 0; w < static_cast<int>(sizeof(X)) / 2; w++)
        raw.eight.words[w] = __ldg(reinterpret_cast<const uint4 *>(x + i) + w);
    }
    return raw.eight;
  }
#pragma unroll
  for (int j = 0; j < 8; j++) {
    if (i + j < k)
      raw.elements[j] = x[i + j];
  }
  return raw.eight;
}

// Magnitudes are compared as integers: there infinity and NaN are above every number, so that none is lost. Two of 16
// bits a word, one of 32.
template <typename X> __device__ inline unsigned quantize_larger(unsigned most, unsigned word) {
  if constexpr (sizeof(X) == 2)
    return __vmaxu2(most, word & 0x7fff7fffu);
  return max(most, word & 0x7fffffffu);
}

template <typename X> __device__ inline unsigned quantize_magnitude(const quantize_eight<X> &eight, unsigned most) {
#pragma unroll
  for (int w = 0; w < static_cast<int>(sizeof(X)) / 2; w++) {
    most = quantize_larger<X>(most, eight.words[w].x);
    most = quantize_larger<X>(most, eight.words[w].y);
    most = quantize_larger<X>(most, eight.words[w].z);
    most = quantize_larger<X>(most, eight.words[w].w);
  }
  return most;
}

__device__ inline unsigned quantize_magnitude(const float (&values)[8], unsigned most) {
#pragma unroll
  for (int j = 0; j < 8; j++)
    most = max(most, __float_as_uint(values[j]) & 0x7fffffffu);
  return most;
}

// The larger magnitude of what quantize_magnitude has, as the bits of an f32.
template <typename X> __device__ inline unsigned quantize_widen(unsigned most) {
  const unsigned half = max(most & 0xffffu, most >> 16);
  if constexpr (std::is_same_v<X, __half>)
    return __float_as_uint(__half2float(__ushort_as_half(static_cast<unsigned short>(half))));
  return sizeof(X) == 2 ? half << 16 : most;
}

template <bool e4m3> __device__ inline float quantize_scale(unsigned magnitude) {
  if (magnitude >= 0x7f800000u)
    return __uint_as_float(0x7fffffffu);
  float scale = __fdiv_rn(__uint_as_float(magnitude), e4m3 ? 448.0f : 127.0f);
  return scale < 0x1p-126f ? 0.0f : scale;
}

// In the lowest byte; above it is anything.
template <bool e4m3> __device__ inline unsigned quantize_code(float value, float scale) {
  const float quotient = __fdiv_rn(value, scale);
  if constexpr (e4m3)
    return e4m3_of_two(quotient, 0.0f);
  return static_cast<unsigned>(max(-127, min(127, __float2int_rn(quotient))));
}

__device__ inline unsigned quantize_pack(const unsigned *bytes) {
  return __byte_perm(__byte_perm(bytes[0], bytes[1], 0x0040), __byte_perm(bytes[2], bytes[3], 0x0040), 0x5410);
}

// Eight codes as the quantizer defines them, of a scale above zero. E4M3 seldom needs them: one division is an eighth
// of the instructions that eight are. INT8 would lose a tenth of its speed. Codes come in where numbers leave.
template <bool e4m3> __device__ inline uint2 quantize_exactly(const float (&values)[8], float scale) {
  unsigned next[8];
#pragma unroll
  for (int j = 0; j < 8; j++)
    next[j] = __float_as_uint(values[j]);
#pragma unroll(e4m3 ? 1 : 8)
  for (int i = 0; i < 8; i++) {
    const unsigned code = quantize_code<e4m3>(__uint_as_float(next[0]), scale);
#pragma unroll
    for (int j = 0; j < 7; j++)
      next[j] = next[j + 1];
    next[7] = code;
  }
  return {quantize_pack(next), quantize_pack(next + 4)};
}

// A row's scale, and factors that lead to a little below and a little above each quotient: where both round to the same
// code the quotient does, too, and needs no division.
struct quantize_factors {
  float scale, below, above;

  __device__ explicit quantize_factors(float s) : scale(s) {
    const float inverse = __frcp_rn(s);
    below = inverse * (1 - 0x1p-21f);
    above = inverse * (1 + 0x1p-21f);
  }
};

// Four codes below or above; the larger a number that is added, the fewer of its bits are left: those of a whole
// number.
template <bool e4m3> __device__ inline unsigned quantize_four(const float *values, float factor) {
  if constexpr (e4m3) {
    return e4m3_of_two(values[0] * factor, values[1] * factor) | e4m3_of_two(values[2] * factor, values[3] * factor)
                                                                     << 16;
  } else {
    unsigned whole[4];
#pragma unroll
    for (int j = 0; j < 4; j++)
      whole[j] = __float_as_uint(fmaf(values[j], factor, 0x1.8p23f));
    return quantize_pack(whole);
  }
}

template <bool e4m3> __device__ inline uint2 quantize_codes(const float (&values)[8], const quantize_factors &factors) {
  if (!(factors.scale > 0.0f)) // zero or NaN
    return {0, 0};
  const uint2 below = {quantize_four<e4m3>(values, factors.below), quantize_four<e4m3>(values + 4, factors.below)};
  const uint2 above = {quantize_four<e4m3>(values, factors.above), quantize_four<e4m3>(values + 4, factors.above)};
  return below.x == above.x && below.y == above.y ? below : quantize_exactly<e4m3>(values, factors.scale);
}

template <bool e4m3, typename X>
__device__ inline uint2 quantize_codes(const quantize_eight<X> &eight, const quantize_factors &factors) {
  const X *elements = reinterpret_cast<const X *>(&eight);
  float values[8];
#pragma unroll
  for (int j = 0; j < 8; j++)
    values[j] = number_load(elements[j]);
  return quantize_codes<e4m3>(values, factors);
}

template <bool e4m3> __device__ inline void quantize_store8(uint8_t *out, const float (&values)[8], float scale) {
  *reinterpret_cast<uint2 *>(out) = quantize_codes<e4m3>(values, quantize_factors(scale));
}

// What a thread keeps of a long row, or of many rows, at most: so it has eight (f32: four) loads under way. Fewer rows
// are done sooner by more threads, each of which keeps less.
template <typename X> constexpr int quantize_kept_most = 16 / sizeof(X);
constexpr int quantize_threads(int kept) {
  return kept <= 2 ? 1024 : 512;
}

// One row by one block. A thread keeps its first `kKept` times eight elements: rows of up to so many are read once,
// longer ones twice.
template <typename X, bool e4m3, int kKept, bool kAligned>
__device__ inline void quantize_row_as(const X *from, int k, int k_padded, uint8_t *to, float *scale) {
  __shared__ unsigned warps[32];
  const int first = 8 * static_cast<int>(threadIdx.x), step = 8 * static_cast<int>(blockDim.x);
  quantize_eight<X> kept[kKept];
#pragma unroll
  for (int i = 0; i < kKept; i++)
    kept[i] = quantize_load8(from, first + i * step, k, kAligned);
  unsigned most = 0;
#pragma unroll
  for (int i = 0; i < kKept; i++)
    most = quantize_magnitude(kept[i], most);
  for (int i = first + kKept * step; i < k; i += step)
    most = quantize_magnitude(quantize_load8(from, i, k, kAligned), most);
  most = __reduce_max_sync(0xffffffffu, quantize_widen<X>(most));
  if (threadIdx.x % 32 == 0)
    warps[threadIdx.x / 32] = most;
  __syncthreads();
  most = __reduce_max_sync(0xffffffffu, threadIdx.x % 32 < blockDim.x / 32 ? warps[threadIdx.x % 32] : 0);
  const quantize_factors factors(quantize_scale<e4m3>(most));
  if (threadIdx.x == 0)
    *scale = factors.scale;
#pragma unroll
  for (int i = 0; i < kKept; i++) {
    if (first + i * step < k_padded)
      *reinterpret_cast<uint2 *>(to + first + i * step) = quantize_codes<e4m3>(kept[i], factors);
  }
  for (int i = first + kKept * step; i < k_padded; i += step)
    *reinterpret_cast<uint2 *>(to + i) = quantize_codes<e4m3>(quantize_load8(from, i, k, kAligned), factors);
}

template <typename X, bool e4m3, int kKept>
__device__ inline void quantize_row(const X *from, int64_t row, int64_t k, int64_t k_padded, uint8_t *codes,
                                    float *scales) {
  const int width = static_cast<int>(k), width_padded = static_cast<int>(k_padded);
  uint8_t *to = codes + row * k_padded;
  if (k % 8 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0)
    quantize_row_as<X, e4m3, kKept, true>(from, width, width_padded, to, scales + row);
  else
    quantize_row_as<X, e4m3, 1, false>(from, width, width_padded, to, scales + row);
}

template <typename X, bool e4m3, int kKept>
__global__ void __launch_bounds__(quantize_threads(kKept), 2048 / 2 / quantize_threads(kKept))
    quantize_rows(const uint8_t *x, int64_t x_stride, int64_t k, int64_t k_padded, uint8_t *codes, float *scales) {
  quantize_let_reader_start();
  quantize_wait_for_x();
  const X *from = reinterpret_cast<const X *>(x + blockIdx.x * x_stride);
  quantize_row<X, e4m3, kKept>(from, blockIdx.x, k, k_padded, codes, scales);
}

template <typename X, bool e4m3, int kKept>
__global__ void __launch_bounds__(quantize_threads(kKept), 2048 / 2 / quantize_threads(kKept))
    quantize_table(const row_table x, int64_t k, int64_t k_padded, uint8_t *codes, float *scales, const row_table y,
                   void **y_rows) {
  quantize_let_reader_start();
  if (y_rows != nullptr && threadIdx.x == 0)
    y_rows[blockIdx.x] = const_cast<void *>(y.rows[blockIdx.x]);
  quantize_row<X, e4m3, kKept>(static_cast<const X *>(x.rows[blockIdx.x]), blockIdx.x, k, k_padded, codes, scales);
}

constexpr int quantize_block_threads = 256;

// Half a warp a block of 128, eight elements a thread.
template <typename X>
__global__ void __launch_bounds__(quantize_block_threads)
    quantize_blocks(const uint8_t *x, int64_t x_stride, int64_t rows, int64_t rows_padded, int64_t k, int64_t k_padded,
                    uint8_t *codes, float *scales) {
  quantize_let_reader_start();
  quantize_wait_for_x();
  const int64_t blocks = k_padded / GEMM_GROUP;
  const int64_t index = (static_cast<int64_t>(blockIdx.x) * quantize_block_threads + threadIdx.x) / 16;
  const int64_t row = index / blocks, block = index % blocks;
  const int64_t i = block * GEMM_GROUP + threadIdx.x % 16 * 8;
  quantize_eight<X> eight = {};
  if (row < rows) {
    const X *from = reinterpret_cast<const X *>(x + row * x_stride);
    const bool aligned = k % 8 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0;
    eight = quantize_load8(from, static_cast<int>(i), static_cast<int>(k), aligned);
  }
  unsigned most = quantize_widen<X>(quantize_magnitude(eight, 0));
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2)
    most = max(most, __shfl_xor_sync(0xffffffffu, most, offset));
  const quantize_factors factors(quantize_scale<true>(most));
  if (row >= rows_padded)
    return;
  *reinterpret_cast<uint2 *>(codes + row * k_padded + i) = quantize_codes<true>(eight, factors);
  if (threadIdx.x % 16 == 0)
    scales[block * rows_padded + row] = factors.scale;
}
