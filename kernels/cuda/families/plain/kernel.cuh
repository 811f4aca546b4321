// Sums of a product by plain arithmetic in tiles of shared memory: for devices, types and sizes that cuBLASLt has
// nothing for. FP8 with block scales multiplies each 128 of K by its scales and adds that to the sum, in f32. Blocks of
// one tile have a slice of K each (config.h).
#pragma once

#include "../../device/number.cuh"
#include "product.h"

constexpr int plain_tile = 64;  // rows and columns of y a block
constexpr int plain_depth = 16; // of K at a time; divides 128
constexpr int plain_side = 16;  // threads along each side, 4 x 4 sums each
constexpr int plain_each = plain_tile / plain_side;

__device__ inline float plain_load(__half value) {
  return __half2float(value);
}

__device__ inline float plain_load(__nv_bfloat16 value) {
  return __bfloat162float(value);
}

__device__ inline int plain_load(int8_t value) {
  return value;
}

// Rows [first, first + plain_tile) of a matrix of `rows` rows of k elements, zeros behind its end.
template <typename T, typename Sum>
__device__ inline void plain_stage(const T *from, int64_t first, int64_t rows, int64_t k, int64_t depth,
                                   Sum (&to)[plain_depth][plain_tile + 1]) {
  for (int i = threadIdx.x; i < plain_tile * plain_depth; i += plain_side * plain_side) {
    const int row = i / plain_depth, column = i % plain_depth;
    const bool inside = first + row < rows && depth + column < k;
    to[column][row] = inside ? plain_load(from[(first + row) * k + depth + column]) : Sum(0);
  }
}

template <typename T, typename Sum>
__global__ void __launch_bounds__(plain_side *plain_side) plain_sums(const plain_product p) {
  __shared__ Sum x_tile[plain_depth][plain_tile + 1], w_tile[plain_depth][plain_tile + 1];
  const int64_t first_n = static_cast<int64_t>(blockIdx.x) * plain_tile;
  const int64_t first_m = static_cast<int64_t>(blockIdx.y) * plain_tile;
  const int column = threadIdx.x % plain_side, row = threadIdx.x / plain_side;
  const int64_t slice = blockIdx.z, first_k = slice * p.cut.slice_k, end_k = min(first_k + p.cut.slice_k, p.k);
  Sum sums[plain_each][plain_each] = {}, part[plain_each][plain_each] = {};
  for (int64_t depth = first_k; depth < end_k; depth += plain_depth) {
    __syncthreads();
    plain_stage(static_cast<const T *>(p.x), first_m, p.m, p.k, depth, x_tile);
    plain_stage(static_cast<const T *>(p.w), first_n, p.n, p.k, depth, w_tile);
    __syncthreads();
#pragma unroll
    for (int d = 0; d < plain_depth; d++) {
#pragma unroll
      for (int i = 0; i < plain_each; i++) {
#pragma unroll
        for (int j = 0; j < plain_each; j++)
          part[i][j] += x_tile[d][row + i * plain_side] * w_tile[d][column + j * plain_side];
      }
    }
    if ((depth + plain_depth) % GEMM_GROUP != 0 && depth + plain_depth < end_k)
      continue;
#pragma unroll
    for (int i = 0; i < plain_each; i++) {
      const int64_t m = first_m + row + i * plain_side;
#pragma unroll
      for (int j = 0; j < plain_each; j++) {
        Sum scale = 1;
        if (p.x_scale && m < p.m)
          scale = p.x_scale[depth / GEMM_GROUP * p.x_scale_stride + m] *
                  p.w_scale[first_n / GEMM_GROUP * p.w_scale_stride + depth / GEMM_GROUP];
        sums[i][j] += part[i][j] * scale;
        part[i][j] = 0;
      }
    }
  }
  Sum *const to = p.cut.slices > 1 ? static_cast<Sum *>(p.parts) + slice * p.m * p.n : static_cast<Sum *>(p.sums);
#pragma unroll
  for (int i = 0; i < plain_each; i++) {
    const int64_t m = first_m + row + i * plain_side;
#pragma unroll
    for (int j = 0; j < plain_each; j++) {
      const int64_t n = first_n + column + j * plain_side;
      if (m < p.m && n < p.n)
        to[m * p.n + n] = sums[i][j];
    }
  }
}

// The slices' sums of one element a thread, in the order of K.
template <typename Sum>
__device__ inline Sum plain_add(const void *parts, int64_t i, int64_t elements, int64_t slices) {
  Sum sum = 0;
  for (int64_t slice = 0; slice < slices; slice++)
    sum += static_cast<const Sum *>(parts)[slice * elements + i];
  return sum;
}

constexpr int plain_adders = 128; // threads

template <typename Sum> __global__ void __launch_bounds__(plain_adders) plain_join(const plain_product p) {
  const int64_t elements = p.m * p.n, i = static_cast<int64_t>(blockIdx.x) * plain_adders + threadIdx.x;
  if (i < elements)
    static_cast<Sum *>(p.sums)[i] = plain_add<Sum>(p.parts, i, elements, p.cut.slices);
}
