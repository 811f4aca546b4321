// Numbers to a weight's codes and scales, in the canonical form of proto/gemm.h, with the bits of
// proto/weights/quantize.h. Rows with a scale of their own are those of passes/quantize.cuh.
#pragma once

#include "../passes/quantize.cuh"

constexpr int convert_threads = 256;

template <typename X> __device__ inline const X *convert_row(const uint8_t *x, int64_t stride, int64_t row) {
  return reinterpret_cast<const X *>(x + row * stride);
}

// Whether quantize_load8 may read whole vectors of the row.
template <typename X> __device__ inline bool convert_aligned(const X *from, int64_t k) {
  return k % 8 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0;
}

// ---- one scale for all: first the largest magnitude, as the bits of an f32, then the codes

template <typename X>
__global__ void __launch_bounds__(convert_threads)
    convert_magnitude(const uint8_t *x, int64_t stride, int64_t rows, int64_t k, unsigned *most) {
  unsigned largest = 0;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const X *from = convert_row<X>(x, stride, row);
    const bool aligned = convert_aligned(from, k);
    for (int i = 8 * static_cast<int>(threadIdx.x); i < k; i += 8 * convert_threads)
      largest = quantize_magnitude(quantize_load8(from, i, static_cast<int>(k), aligned), largest);
  }
  largest = __reduce_max_sync(0xffffffffu, quantize_widen<X>(largest));
  if (threadIdx.x % 32 == 0)
    atomicMax(most, largest);
}

template <typename X, bool e4m3>
__global__ void __launch_bounds__(convert_threads)
    convert_scaled(const uint8_t *x, int64_t stride, int64_t rows, int64_t k, float scale, uint8_t *codes,
                   int64_t row_bytes) {
  const quantize_factors factors(scale);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const X *from = convert_row<X>(x, stride, row);
    const bool aligned = convert_aligned(from, k);
    for (int i = 8 * static_cast<int>(threadIdx.x); i < row_bytes; i += 8 * convert_threads)
      *reinterpret_cast<uint2 *>(codes + row * row_bytes + i) =
          quantize_codes<e4m3>(quantize_load8(from, i, static_cast<int>(k), aligned), factors);
  }
}

// ---- E4M3 with a scale for every 128 by 128: a block each, 16 threads a row

constexpr int convert_square_steps = GEMM_GROUP * 16 / convert_threads; // rows of a thread

template <typename X>
__global__ void __launch_bounds__(convert_threads)
    convert_squares(const uint8_t *x, int64_t stride, int64_t rows, int64_t k, uint8_t *codes, int64_t row_bytes,
                    float *scales) {
  __shared__ unsigned warps[convert_threads / 32];
  const int column = static_cast<int>(blockIdx.x) * GEMM_GROUP + threadIdx.x % 16 * 8;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * GEMM_GROUP + threadIdx.x / 16;
  quantize_eight<X> kept[convert_square_steps];
  unsigned most = 0;
#pragma unroll
  for (int i = 0; i < convert_square_steps; i++) {
    const int64_t row = first + i * (convert_threads / 16);
    kept[i] = {};
    if (row < rows) {
      const X *from = convert_row<X>(x, stride, row);
      kept[i] = quantize_load8(from, column, static_cast<int>(k), convert_aligned(from, k));
    }
    most = quantize_magnitude(kept[i], most);
  }
  most = __reduce_max_sync(0xffffffffu, quantize_widen<X>(most));
  if (threadIdx.x % 32 == 0)
    warps[threadIdx.x / 32] = most;
  __syncthreads();
  most = __reduce_max_sync(0xffffffffu, warps[threadIdx.x % (convert_threads / 32)]);
  const quantize_factors factors(quantize_scale<true>(most));
  if (threadIdx.x == 0)
    scales[static_cast<int64_t>(blockIdx.y) * gridDim.x + blockIdx.x] = factors.scale;
#pragma unroll
  for (int i = 0; i < convert_square_steps; i++) {
    const int64_t row = first + i * (convert_threads / 16);
    if (row < rows && column < row_bytes)
      *reinterpret_cast<uint2 *>(codes + row * row_bytes + column) = quantize_codes<true>(kept[i], factors);
  }
}

// ---- two bits and a scale for every 128 of a row
//
// A thread finds the scale of one group, in the order of operations of quantize_least_squares and quantize_ternary and
// in their arithmetic: nothing is contracted, so that the bits are those of the host. What leads there and from there
// is a warp's, a group after the other.

constexpr int fit_groups = 64;             // of a block, and its threads
constexpr int fit_stride = GEMM_GROUP + 1; // words, so that the threads' keys lie in different banks

struct fit {
  double gain; // error of all zeros less error of this; never negative
  __half scale;
};

__device__ inline double fit_magnitude(unsigned key) {
  return static_cast<double>(__uint_as_float(key >> 1));
}

__device__ inline void fit_consider(double a, double b, bool negative, fit *best) {
  if (__dmul_rn(a, a) <= __dmul_rn(best->gain, b))
    return;
  const __half rounded = __float2half_rn(static_cast<float>(__ddiv_rn(a, b)));
  const double scale = static_cast<double>(__half2float(rounded));
  const double gain = __dsub_rn(__dmul_rn(__dmul_rn(2.0, scale), a), __dmul_rn(__dmul_rn(scale, scale), b));
  if (gain > best->gain) {
    best->gain = gain;
    best->scale = negative ? __ushort_as_half(__half_as_ushort(rounded) | 0x8000u) : rounded;
  }
}

// The next key from `at` on of an element that may reach the code of magnitude 2, and the scale where it does.
__device__ inline int fit_next_two(const unsigned *keys, int at, unsigned doubled, double *reached) {
  while (at < GEMM_GROUP && (keys[at] & 1u) != doubled)
    at++;
  *reached = at < GEMM_GROUP ? __ddiv_rn(fit_magnitude(keys[at]), 1.5) : 0.0;
  return at;
}

// Walks the scales of one sign, the largest first, as quantize.c does. Keys descend; those behind the group's end are
// zeros.
__device__ inline void fit_sign(const unsigned *keys, bool negative, fit *best) {
  const unsigned doubled = negative ? 1u : 0u;
  double a = 0.0, b = 0.0, at_two;
  int one = 0, two = fit_next_two(keys, 0, doubled, &at_two);
  for (;;) {
    const double magnitude = one < GEMM_GROUP ? fit_magnitude(keys[one]) : 0.0, at_one = 2.0 * magnitude;
    if (at_one == 0.0 && at_two == 0.0)
      return;
    if (at_one >= at_two) {
      a = __dadd_rn(a, magnitude);
      b += 1.0;
      one++;
    } else {
      a = __dadd_rn(a, __dmul_rn(1.5, at_two));
      b += 3.0;
      two = fit_next_two(keys, two + 1, doubled, &at_two);
    }
    fit_consider(a, b, negative, best);
  }
}

__device__ inline __half fit_least_squares(const unsigned *keys) {
  fit best = {0.0, __ushort_as_half(0)};
  fit_sign(keys, false, &best);
  fit_sign(keys, true, &best);
  return best.scale;
}

// Keys in the order of the elements, `count` of them.
__device__ inline __half fit_ternary(const unsigned *keys, int count) {
  double sum = 0.0;
  unsigned most = 0;
  for (int i = 0; i < count; i++) {
    sum = __dadd_rn(sum, fit_magnitude(keys[i]));
    most = max(most, keys[i] >> 1);
  }
  bool exact = true;
  for (int i = 0; i < count; i++)
    exact = exact && (keys[i] >> 1 == 0u || keys[i] >> 1 == most);
  const float mean = static_cast<float>(__ddiv_rn(sum, static_cast<double>(count)));
  return __float2half_rn(exact ? __uint_as_float(most) : mean);
}

// Writes the 128 keys of `raw` to `sorted`, descending: each goes behind those above it. By a warp.
__device__ inline void fit_sort(const unsigned *raw, unsigned *sorted) {
  const int lane = threadIdx.x % 32;
  unsigned own[4];
  int rank[4] = {0, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < 4; i++)
    own[i] = raw[lane + 32 * i];
  for (int j = 0; j < GEMM_GROUP; j += 4) {
    const uint4 four = *reinterpret_cast<const uint4 *>(raw + j);
    const unsigned other[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int o = 0; o < 4; o++) {
#pragma unroll
      for (int i = 0; i < 4; i++)
        rank[i] += other[o] > own[i] || (other[o] == own[i] && j + o < lane + 32 * i) ? 1 : 0;
    }
  }
#pragma unroll
  for (int i = 0; i < 4; i++)
    sorted[rank[i]] = own[i];
}

struct convert_groups {
  const uint8_t *x;
  int64_t stride, rows, k;
  int64_t groups; // of a row
  bool ternary;
  uint8_t *codes;
  int64_t row_bytes;
  __half *scales;
  unsigned *flawed; // the first row with a value that no f16 scale can express; rows where there is none
};

template <typename X> __device__ inline float convert_value(const convert_groups &p, int64_t row, int64_t column) {
  return column < p.k ? number_load(convert_row<X>(p.x, p.stride, row)[column]) : 0.0f;
}

// A group's keys: the magnitude's bits, then the sign.
template <typename X>
__device__ inline void convert_keys(const convert_groups &p, int64_t row, int64_t group, unsigned *keys) {
  bool flawed = false;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int at = threadIdx.x % 32 + 32 * i;
    const float value = convert_value<X>(p, row, group * GEMM_GROUP + at);
    const bool good = fabsf(value) <= 65504.0f; // a walk over what is no number would not end
    const unsigned bits = good ? __float_as_uint(value) : 0u;
    flawed |= !good;
    keys[at] = bits << 1 | bits >> 31;
  }
  if (flawed)
    atomicMin(p.flawed, static_cast<unsigned>(row));
}

// The nearest codes of a group, four in a byte of each thread.
template <typename X>
__device__ inline void convert_codes(const convert_groups &p, int64_t row, int64_t group, __half scale) {
  const int lane = threadIdx.x % 32;
  const float factor = __half2float(scale), high = p.ternary ? 1.0f : 2.0f;
  unsigned packed = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    float code = 0.0f;
    if (factor != 0.0f)
      code = fminf(fmaxf(rintf(__fdiv_rn(convert_value<X>(p, row, group * GEMM_GROUP + 4 * lane + i), factor)), -1.0f),
                   high);
    packed |= static_cast<unsigned>(static_cast<int>(code) + 1) << (2 * i);
  }
  p.codes[row * p.row_bytes + group * (GEMM_GROUP / 4) + lane] = static_cast<uint8_t>(packed);
}

template <typename X> __global__ void __launch_bounds__(fit_groups) convert_int2(const convert_groups p) {
  __shared__ alignas(16) unsigned raw[fit_groups / 32][GEMM_GROUP];
  __shared__ unsigned keys[fit_groups * fit_stride];
  __shared__ __half scales[fit_groups];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * fit_groups, all = p.rows * p.groups;
  const int count = static_cast<int>(all - first < fit_groups ? all - first : fit_groups);
  const int warp = threadIdx.x / 32;
  for (int i = warp; i < count; i += fit_groups / 32) {
    const int64_t row = (first + i) / p.groups, group = (first + i) % p.groups;
    unsigned *own = keys + i * fit_stride;
    convert_keys<X>(p, row, group, p.ternary ? own : raw[warp]);
    __syncwarp();
    if (!p.ternary)
      fit_sort(raw[warp], own);
    __syncwarp();
  }
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < count) {
    const unsigned *own = keys + threadIdx.x * fit_stride;
    const int64_t left = p.k - (first + threadIdx.x) % p.groups * GEMM_GROUP;
    const __half scale =
        p.ternary ? fit_ternary(own, static_cast<int>(left < GEMM_GROUP ? left : GEMM_GROUP)) : fit_least_squares(own);
    scales[threadIdx.x] = scale;
    p.scales[first + threadIdx.x] = scale;
  }
  __syncthreads();
  for (int i = warp; i < count; i += fit_groups / 32)
    convert_codes<X>(p, (first + i) / p.groups, (first + i) % p.groups, scales[i]);
}
