// Kernel of sm80/rows/launch.h. `O`: what its matrix instructions multiply, 32 of K at a time.
//
// A block has a ring of steps of K in shared memory, filled by copies that no thread waits for: the step's part of rows
// of x and of W, in whose order nothing meets in a bank. Sums stay in the instructions' registers. All steps of all
// tiles, one after another, are shared out to blocks evenly; what a block has of a tile it writes to y if that is all,
// else its sums lie in `parts`, and a second kernel adds them in their order.
#pragma once

#include "../../../device/number.cuh"
#include "../../sm90/hopper/output.cuh"
#include "../team.cuh"
#include "config.h"

namespace sm80_rows {

constexpr int step_bytes = SM80_ROWS_STEP;
constexpr int adders = 128; // threads of a block that adds parts

// How warps share a tile.
struct tile {
  int x, w, x_warps, w_warps; // 16 rows of x and 8 of W each a warp; warps along both
  __host__ __device__ constexpr int columns() const {
    return 16 * x * x_warps;
  }
  __host__ __device__ constexpr int rows() const {
    return 8 * w * w_warps;
  }
  __host__ __device__ constexpr int threads() const {
    return 32 * x_warps * w_warps;
  }
  // Of eight neighbours of y, the thread's i-th along x and j-th along W, from the tile's first on.
  __device__ constexpr int row(int thread, int i) const {
    return thread / 32 / w_warps * x * 16 + i * 8 + thread % 32 / 4;
  }
  __device__ constexpr int column(int thread, int j) const {
    return thread / 32 % w_warps * w * 8 + j * 32 + thread % 4 * 8;
  }
};

// A launch: the product, and how it is cut up.
struct work {
  hopper_product product;
  int tiles, ends; // all; along M
  int stages;
  sm80_shares shares;
  struct tile tile;
  void *parts; // shares.parts tiles a block
  bool dependent;
};

// The same as types have it: kX times 16 rows of x, kW times 8 rows of W.
template <int kX_, int kW_, int kWarpsX_, int kWarpsW_> struct shape {
  static constexpr int kX = kX_, kW = kW_, kWarpsW = kWarpsW_;
  static constexpr tile own = {kX_, kW_, kWarpsX_, kWarpsW_};
  static constexpr int columns = own.columns(), rows = own.rows(), threads = own.threads();
  static constexpr int slot = (columns + rows) * step_bytes;
  static_assert(kW % 4 == 0, "rows of W are in blocks of 32");
};

// Rows of W change places so that a thread has eight neighbours of y: row 8 * i + 2 * j + h of 32 is of instruction j
// its column 2 * i + h, which also says where its units of 16 bytes lie.
__device__ constexpr int w_place(int row) {
  return row / 8 % 4 * 2 + row % 2;
}

// What a thread copies next.
template <typename S> struct source {
  static constexpr int stripe = S::threads / 8; // rows that are copied at a time
  const work &w;
  const uint8_t *w_from, *x_from;
  int64_t k; // bytes of a row up to this thread's unit
  int left;  // steps of the block
  int tile, w_rows, x_rows;

  __device__ source(const work &w, int begin, int end) : w(w), left(end - begin), tile(begin / w.shares.steps) {
    to_tile(begin % w.shares.steps);
  }
  // Of each third of a step's copies those of the warps' `third` turn; 3: all.
  template <int kThird = 3> __device__ void fetch_w(uint32_t slot) const {
    const int row = threadIdx.x / 8;
    const uint32_t to = slot + row * step_bytes + (threadIdx.x % 8 ^ w_place(row)) * 16;
    const bool there = left > 0 && k < w.product.k;
    copy<S::rows, kThird, true>(to, w_from, w.product.w_stride, there ? w_rows : 0);
  }
  template <int kThird = 3> __device__ void fetch_x(uint32_t slot) const {
    const int row = threadIdx.x / 8;
    const uint32_t to = slot + (S::rows + row) * step_bytes + (threadIdx.x % 8 ^ row % 8) * 16;
    const bool there = left > 0 && k < w.product.k;
    copy<S::columns, kThird, false>(to, x_from, w.product.x_stride, there ? x_rows : 0);
  }
  __device__ void advance() {
    left--;
    k += step_bytes;
    w_from += step_bytes;
    x_from += step_bytes;
    if (k < static_cast<int64_t>(w.shares.steps) * step_bytes)
      return;
    tile++;
    to_tile(0);
  }

private:
  __device__ void to_tile(int step) {
    const hopper_product &p = w.product;
    const int row = threadIdx.x / 8, n = tile / w.ends * S::rows + row, m = tile % w.ends * S::columns + row;
    k = static_cast<int64_t>(step) * step_bytes + threadIdx.x % 8 * 16;
    w_from = static_cast<const uint8_t *>(p.w) + n * p.w_stride + k;
    x_from = static_cast<const uint8_t *>(p.x) + m * p.x_stride + k;
    w_rows = static_cast<int>(p.n) - n;
    x_rows = static_cast<int>(p.m) - m;
  }
  // What is not there is zeros. Rows of W that are not a multiple of 32 further have other places.
  template <int kRows, int kThird, bool kPlaces>
  static __device__ void copy(uint32_t to, const uint8_t *from, int64_t stride, int there) {
    const int row = threadIdx.x / 8;
#pragma unroll
    for (int i = 0; i < kRows; i += stripe)
      if ((kThird == 3 || i / stripe % 3 == kThird) && (kRows % stripe == 0 || row + i < kRows))
        ptx::copy_async_16((to ^ (kPlaces ? w_place(i) * 16 : 0)) + i * step_bytes, from + i * stride,
                           i < there ? 16 : 0);
  }
};

// A warp's part of a step: 32 bytes of K at a time, the next of which are read while this is multiplied.
template <typename O, typename S> struct fragments {
  uint32_t x[S::kX][4], w[S::kW / 2][4];

  __device__ void load(uint32_t x_at, uint32_t w_at, int part) {
#pragma unroll
    for (int i = 0; i < S::kX; i++)
      ptx::load_matrices(x[i], (x_at ^ part * 32) + i * 16 * step_bytes);
#pragma unroll
    for (int j = 0; j < S::kW / 2; j++)
      ptx::load_matrices(w[j], (w_at ^ part * 32) + (j / 2 * 32 + j % 2 * 4) * step_bytes);
  }
  __device__ void multiply(typename O::sum (&sums)[S::kX][S::kW][4]) const {
    typename O::left left[S::kX];
#pragma unroll
    for (int i = 0; i < S::kX; i++)
      left[i] = O::left_of(x[i]);
#pragma unroll
    for (int j = 0; j < S::kW; j++) {
      const auto right = O::right_of({w[j / 2][j % 2 * 2], w[j / 2][j % 2 * 2 + 1]});
#pragma unroll
      for (int i = 0; i < S::kX; i++)
        O::multiply(sums[i][j], left[i], right);
    }
  }
};

// What sums of eight neighbouring columns from n on become y by; read ahead of all that is written.
struct columns_of_y {
  float scale[8], bias[8];
  __device__ columns_of_y(const hopper_product &p, int64_t n) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
      scale[i] = p.w_scale && n + i < p.n ? p.w_scale[n + i] : 1.0f;
      bias[i] = p.bias && n + i < p.n ? number_load_as(p.bias, n + i, p.bias_type) : 0.0f;
    }
  }
  // 16 bytes at a time.
  template <typename T>
  __device__ void write(const hopper_product &p, int64_t m, int64_t n, const T (&sum)[8], float x_scale) const {
    if (p.y_type != GEMM_F32 && p.y_type != GEMM_S32) {
      hopper::write_sums<8>(p, m, n, sum, scale, x_scale, bias);
      return;
    }
#pragma unroll
    for (int i = 0; i < 8; i += 4) {
      const T four[4] = {sum[i], sum[i + 1], sum[i + 2], sum[i + 3]};
      const float scales[4] = {scale[i], scale[i + 1], scale[i + 2], scale[i + 3]};
      const float biases[4] = {bias[i], bias[i + 1], bias[i + 2], bias[i + 3]};
      if (n + i < p.n)
        hopper::write_sums<4>(p, m, n + i, four, scales, x_scale, biases);
    }
  }
};

template <typename T> struct alignas(16) four { T of[4]; };

// Where a block leaves its part of a tile, the first one that it has or the last: each thread's eights, along W and
// then along x, in two halves.
template <typename T> __device__ inline four<T> *part_of(const work &w, int block, bool first) {
  return static_cast<four<T> *>(w.parts) +
         (static_cast<int64_t>(w.shares.parts) * block + !first) * (w.tile.columns() * w.tile.rows() / 4);
}

template <typename S, typename T>
__device__ inline void write_part(const work &w, const T (&sums)[S::kX][S::kW][4], bool first) {
  four<T> *to = part_of<T>(w, static_cast<int>(blockIdx.x), first) + threadIdx.x;
#pragma unroll
  for (int i = 0; i < 2 * S::kX; i++)
#pragma unroll
    for (int j = 0; j < S::kW; j += 2, to += S::threads) {
      const auto &a = sums[i / 2][j], &b = sums[i / 2][j + 1];
      *to = {{a[i % 2 * 2], a[i % 2 * 2 + 1], b[i % 2 * 2], b[i % 2 * 2 + 1]}};
    }
}

template <typename S, typename T>
__device__ inline void write_tile(const work &w, const T (&sums)[S::kX][S::kW][4], int tile) {
  const hopper_product &p = w.product;
  constexpr struct tile own = S::own;
  const int64_t first_m = static_cast<int64_t>(tile % w.ends) * S::columns;
  const int64_t first_n = static_cast<int64_t>(tile / w.ends) * S::rows;
  float x_scale[2 * S::kX];
#pragma unroll
  for (int i = 0; i < 2 * S::kX; i++) {
    const int64_t m = first_m + own.row(threadIdx.x, i);
    x_scale[i] = p.x_scale && m < p.m ? p.x_scale[m] : 1.0f;
  }
#pragma unroll
  for (int j = 0; j < S::kW / 4; j++) {
    const int64_t n = first_n + own.column(threadIdx.x, j);
    const columns_of_y columns(p, n);
#pragma unroll
    for (int i = 0; i < 2 * S::kX; i++) {
      const int64_t m = first_m + own.row(threadIdx.x, i);
      T sum[8];
#pragma unroll
      for (int at = 0; at < 8; at++)
        sum[at] = sums[i / 2][j * 4 + at / 2][i % 2 * 2 + at % 2];
      if (m < p.m && n < p.n)
        columns.write(p, m, n, sum, x_scale[i]);
    }
  }
}

// Of a launch with parts, whose work this is: a thread for eight neighbours of y.
template <typename T> __global__ void __launch_bounds__(adders) add_parts(const __grid_constant__ work w) {
  const int columns = w.tile.columns(), rows = w.tile.rows(), threads = w.tile.threads();
#if __CUDA_ARCH__ >= 900
  ptx::let_next_grid_start();
  ptx::wait_for_previous_grid();
#endif
  const int each = columns * rows / 8 / adders; // blocks of a tile
  const int tile = blockIdx.x / each, at = blockIdx.x % each * adders + threadIdx.x;
  const int thread = at % threads, eight = at / threads;
  const int64_t m = tile % w.ends * columns + w.tile.row(thread, eight / (w.tile.w / 4));
  const int64_t n = tile / w.ends * rows + w.tile.column(thread, eight % (w.tile.w / 4));
  const int first = tile * w.shares.steps;
  const int from = sm80::block_of(w.shares, first), to = sm80::block_of(w.shares, first + w.shares.steps - 1);
  if (from == to || m >= w.product.m || n >= w.product.n)
    return;
  const columns_of_y scaled(w.product, n);
  const float x_scale = w.product.x_scale ? w.product.x_scale[m] : 1.0f;
  const int own = eight * 2 * threads + thread;
  const four<T> *part = part_of<T>(w, from, sm80::steps_before(w.shares, from) == first) + own;
  T sum[8] = {};
#if __CUDA_ARCH__ >= 900
  constexpr int at_once = 4;
#else
  constexpr int at_once = 2; // for 8.9 ptxas spills with more
#endif
#pragma unroll(at_once)
  for (int block = from; block <= to; block++) {
    const four<T> next[2] = {part[0], part[threads]};
#pragma unroll
    for (int i = 0; i < 8; i++)
      sum[i] += next[i / 4].of[i % 4];
    part = part_of<T>(w, block + 1, true) + own; // blocks behind the first begin with this tile
  }
  scaled.write(w.product, m, n, sum, x_scale);
}

template <typename O, typename S, int kBlocks>
__global__ void __launch_bounds__(S::threads, kBlocks) run(const __grid_constant__ work w) {
  using T = typename O::sum;
  extern __shared__ __align__(128) uint8_t raw[];
  const uint32_t shared = ptx::shared_address(raw);
  const int block = static_cast<int>(blockIdx.x), begin = sm80::steps_before(w.shares, block),
            end = sm80::steps_before(w.shares, block + 1);
  source<S> next(w, begin, end);
  sm80::ring to(shared, 0, w.stages, S::slot), from = to;
  const int ahead = w.stages - 1;
  sm80::fill(next, to, ahead, w.dependent);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t x_at =
      (S::rows + warp / S::kWarpsW * S::kX * 16 + lane % 16) * step_bytes + (lane / 16 ^ lane % 8) * 16;
  const uint32_t w_at = (warp % S::kWarpsW * S::kW * 8 + lane % 8 / 2 * 8 + lane / 16 * 2 + lane % 2) * step_bytes +
                        (lane / 8 % 2 ^ lane % 8) * 16;
  int tile = begin / w.shares.steps, step = begin % w.shares.steps;
  sm80::wait_for_copies(ahead - 1);
  __syncthreads();
  uint32_t slot = from.next();
  fragments<O, S> parts[2];
  parts[0].load(slot + x_at, slot + w_at, 0);
  for (int left = end - begin; left > 0; tile++, step = 0) {
    const int count = min(left, w.shares.steps - step);
    T sums[S::kX][S::kW][4] = {};
    for (int i = 0; i < count; i++) {
      const uint32_t free = to.next();
      parts[1].load(slot + x_at, slot + w_at, 1);
      next.template fetch_w<0>(free);
      next.template fetch_x<0>(free);
      parts[0].multiply(sums);
      parts[0].load(slot + x_at, slot + w_at, 2);
      next.template fetch_w<1>(free);
      next.template fetch_x<1>(free);
      parts[1].multiply(sums);
      parts[1].load(slot + x_at, slot + w_at, 3);
      next.template fetch_w<2>(free);
      next.template fetch_x<2>(free);
      next.advance();
      ptx::copy_async_commit();
      parts[0].multiply(sums);
      // The next step's first part is read while this one's last is multiplied.
      sm80::wait_for_copies(ahead - 1);
      __syncthreads();
      slot = from.next();
      parts[0].load(slot + x_at, slot + w_at, 0);
      parts[1].multiply(sums);
    }
    if (count == w.shares.steps)
      write_tile<S, T>(w, sums, tile);
    else
      write_part<S, T>(w, sums, left == end - begin);
    left -= count;
  }
}

} // namespace sm80_rows
