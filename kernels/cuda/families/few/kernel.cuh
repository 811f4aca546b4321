// The kernel of few/config.h.
#pragma once

#include "../../device/ptx.cuh"
#include "../sm90/hopper/output.cuh"
#include "config.h"

namespace few {

constexpr int threads = 32 * FEW_WARPS;

// A launch: the product, and how it is cut up.
struct work {
  hopper_product product;
  int rows, k_warps; // few_config
  int tiles, passes; // tiles of W; turns of FEW_PASS units that a warp takes for its share of K
  int x_stride;      // in shared memory
  bool dependent;
};

template <bool kIntegers> struct sum_of { using type = float; };
template <> struct sum_of<true> { using type = int; };

// Where a warp's next units come from: two rows of W a thread, 8 apart. Pairs of units lie together, those of the other
// warps between them. What is not there is read from the nearest place that is: sums of such rows are nobody's, and x
// is zero behind the end of K.
struct source {
  const uint8_t *from[2];
  int k, last; // the thread's next 16 bytes, and the last of the row
  bool more;   // there is such a tile

  __device__ source(const work &w, int tile, int pass) {
    const hopper_product &p = w.product;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row = warp / w.k_warps * FEW_ROWS + lane / 4, first = tile * w.rows;
    const int most = min(w.rows, static_cast<int>(p.n) - first) - 1;
    more = tile < w.tiles;
#pragma unroll
    for (int i = 0; i < 2; i++)
      from[i] = static_cast<const uint8_t *>(p.w) + (first + min(row + 8 * i, most)) * p.w_stride;
    k = (warp % w.k_warps + pass * (FEW_PASS / 2) * w.k_warps) * 2 * FEW_UNIT + lane % 4 * 16;
    last = static_cast<int>(p.k) - 16;
  }

  // The pass's unit `slot`, for slots in their order; `hop`: from pair to pair.
  __device__ void fetch(int slot, int hop, uint4 (&out)[2]) {
    const uint32_t at = min(k, last);
#pragma unroll
    for (int i = 0; i < 2; i++)
      ptx::load_once(out[i], from[i] + at, more);
    k += slot % 2 == 0 ? FEW_UNIT : hop - FEW_UNIT;
  }
};

// Sixteen rows of W times eight columns of x over one unit of K. The order of K within the unit is that in which
// threads load 16 bytes each, the same on both sides.
__device__ inline void multiply(int (&sum)[4], const uint4 (&w)[2], const uint4 &x) {
  ptx::mma_s8(sum, {w[0].x, w[1].x, w[0].y, w[1].y}, {x.x, x.y});
  ptx::mma_s8(sum, {w[0].z, w[1].z, w[0].w, w[1].w}, {x.z, x.w});
}

#if __CUDA_ARCH__ >= 900
__device__ inline void multiply_four(float (&sum)[4], uint32_t first, uint32_t second, uint32_t x) {
  const uint32_t w[4] = {ptx::e4m3_to_f16<0>(first), ptx::e4m3_to_f16<0>(second), ptx::e4m3_to_f16<1>(first),
                         ptx::e4m3_to_f16<1>(second)};
  const uint32_t b[2] = {ptx::e4m3_to_f16<0>(x), ptx::e4m3_to_f16<1>(x)};
  ptx::mma_f16(sum, w, b, sum);
}

__device__ inline void multiply(float (&sum)[4], const uint4 (&w)[2], const uint4 &x) {
  multiply_four(sum, w[0].x, w[1].x, x.x);
  multiply_four(sum, w[0].y, w[1].y, x.y);
  multiply_four(sum, w[0].z, w[1].z, x.z);
  multiply_four(sum, w[0].w, w[1].w, x.w);
}

#else // few_takes knows that it cannot
__device__ inline void multiply(float (&)[4], const uint4 (&)[2], const uint4 &) {}
#endif

// Where the unit of zeros begins in a row of x: that of the units behind the end of K.
__device__ inline int zeros_at(const hopper_product &p) {
  return (static_cast<int>(p.k) + FEW_UNIT - 1) / FEW_UNIT * FEW_UNIT;
}

// All rows of x, zeros from K on to the end of a unit behind the last one.
__device__ inline void fetch_x(const work &w, uint32_t to) {
  const hopper_product &p = w.product;
  const int width = zeros_at(p) + FEW_UNIT;
  for (int m = 0; m < static_cast<int>(p.m); m++) {
    const uint8_t *row = static_cast<const uint8_t *>(p.x) + m * p.x_stride;
    for (int k = threadIdx.x * 16; k < width; k += threads * 16)
      ptx::copy_async_16(to + m * w.x_stride + k, k < p.k ? row + k : row, k < p.k ? 16 : 0);
  }
  ptx::copy_async_commit();
}

// What of a tile's columns of y does not depend on x: a row of W a thread.
struct column {
  float scale, bias;

  // The scale; the bias may be what the kernel ahead writes.
  __device__ column(const work &w, int tile) : scale(1.0f), bias(0.0f) {
    if (w.product.w_scale && there(w, tile))
      scale = w.product.w_scale[at(w, tile)];
  }

  __device__ void fetch_bias(const work &w, int tile) {
    if (w.product.bias && there(w, tile))
      bias = number_load_as(w.product.bias, at(w, tile), w.product.bias_type);
  }

private:
  __device__ static int at(const work &w, int tile) {
    return tile * w.rows + static_cast<int>(threadIdx.x);
  }

  __device__ static bool there(const work &w, int tile) {
    return static_cast<int>(threadIdx.x) < w.rows && tile < w.tiles && at(w, tile) < static_cast<int>(w.product.n);
  }
};

template <typename T, int kColumns> struct shared {
  T sums[2][FEW_WARPS][kColumns][FEW_PITCH];
  float scale[2][FEW_WARPS * FEW_ROWS], bias[2][FEW_WARPS * FEW_ROWS];
  float x_scale[FEW_COLUMNS_MOST];
};

template <typename T, int kColumns>
__device__ inline void store_sums(const T (&sum)[kColumns / 8][4], T (&to)[kColumns][FEW_PITCH]) {
  const int row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < kColumns / 8; i++) {
    to[8 * i + column][row] = sum[i][0];
    to[8 * i + column + 1][row] = sum[i][1];
    to[8 * i + column][row + 8] = sum[i][2];
    to[8 * i + column + 1][row + 8] = sum[i][3];
  }
}

// Two neighbouring columns of y a thread and turn.
template <typename T, int kColumns>
__device__ inline void write_tile(const work &w, const shared<T, kColumns> &s, int buffer, int tile) {
  const hopper_product &p = w.product;
  const int pairs = w.rows / 2;
  for (int i = threadIdx.x; i < pairs * static_cast<int>(p.m); i += threads) {
    const int m = i / pairs, row = i % pairs * 2, first = row / FEW_ROWS * w.k_warps;
    T sum[2] = {};
    for (int warp = first; warp < first + w.k_warps; warp++) {
      sum[0] += s.sums[buffer][warp][m][row % FEW_ROWS];
      sum[1] += s.sums[buffer][warp][m][row % FEW_ROWS + 1];
    }
    const float scale[2] = {s.scale[buffer][row], s.scale[buffer][row + 1]};
    const float bias[2] = {s.bias[buffer][row], s.bias[buffer][row + 1]};
    hopper::write_sums<2>(p, m, tile * w.rows + row, sum, scale, s.x_scale[m], bias);
  }
}

template <bool kIntegers, int kColumns>
__global__ void __launch_bounds__(threads, 1) run(const __grid_constant__ work w) {
  using T = typename sum_of<kIntegers>::type;
  extern __shared__ uint8_t raw[];
  auto &s = *reinterpret_cast<shared<T, kColumns> *>(raw);
  const hopper_product &p = w.product;
  const uint32_t x_begin = ptx::shared_address(raw + sizeof s);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, grid = static_cast<int>(gridDim.x);

  int tile = static_cast<int>(blockIdx.x);
  column own(w, tile);
  if (!w.dependent) // before W, behind which it would come late
    fetch_x(w, x_begin);
  uint4 ring[FEW_PASS][2] = {};
  const int hop = w.k_warps * 2 * FEW_UNIT;
  {
    source first(w, tile, 0);
#pragma unroll
    for (int i = 0; i < FEW_PASS; i++)
      first.fetch(i, hop, ring[i]);
  }
#if __CUDA_ARCH__ >= 900
  if (w.dependent) {
    ptx::let_next_grid_start();
    ptx::wait_for_previous_grid();
    fetch_x(w, x_begin);
  }
#endif
  own.fetch_bias(w, tile);
  if (threadIdx.x < FEW_COLUMNS_MOST)
    s.x_scale[threadIdx.x] = p.x_scale && threadIdx.x < p.m ? p.x_scale[threadIdx.x] : 1.0f;
  ptx::copy_async_wait<0>();
  __syncthreads();

  // Columns behind the last row of x repeat it: nobody reads their sums.
  uint32_t x_at[kColumns / 8];
#pragma unroll
  for (int i = 0; i < kColumns / 8; i++)
    x_at[i] = x_begin + min(8 * i + lane / 4, static_cast<int>(p.m) - 1) * w.x_stride + lane % 4 * 16;

  const int zeros = zeros_at(p);
  for (int buffer = 0; tile < w.tiles; tile += grid, buffer ^= 1) {
    T sum[kColumns / 8][4] = {};
    for (int pass = 0; pass < w.passes; pass++) {
      const bool last = pass + 1 == w.passes;
      source next(w, last ? tile + grid : tile, last ? 0 : pass + 1);
      int k = (warp % w.k_warps + pass * (FEW_PASS / 2) * w.k_warps) * 2 * FEW_UNIT;
#pragma unroll
      for (int i = 0; i < FEW_PASS; i++) {
        const int at = min(k, zeros);
#pragma unroll
        for (int c = 0; c < kColumns / 8; c++)
          multiply(sum[c], ring[i], ptx::load_shared_uint4(x_at[c] + at));
        next.fetch(i, hop, ring[i]);
        k += i % 2 == 0 ? FEW_UNIT : hop - FEW_UNIT;
      }
    }
    store_sums<T, kColumns>(sum, s.sums[buffer][warp]);
    if (static_cast<int>(threadIdx.x) < w.rows) {
      s.scale[buffer][threadIdx.x] = own.scale;
      s.bias[buffer][threadIdx.x] = own.bias;
    }
    own = column(w, tile + grid);
    own.fetch_bias(w, tile + grid);
    __syncthreads(); // sums of the tile after the next go over these: whoever writes them has passed the next barrier
    write_tile<T, kColumns>(w, s, buffer, tile);
  }
}

} // namespace few
