// Kernel of sm80/rows/launch.h.
//
// Each team of warps has a ring of steps of K in shared memory: the steps' parts of rows of x, which its warps share,
// and of rows of W, which each warp copies for itself. Sums stay in the instructions' registers. Blocks take their
// tiles one after another, those of the same rows of W first, and copy the first steps of the next while they multiply
// the last ones of this.
#pragma once

#include "../../../device/number.cuh"
#include "../../sm90/hopper/output.cuh"
#include "config.h"
#include "operand.cuh"

namespace sm80_rows {

using sm80::ring;
using sm80::seat;

constexpr int warp_rows = 16 * SM80_ROWS_UNITS, pitch = SM80_ROWS_PITCH;
constexpr int adders = 256; // threads of a block that adds slices

// A launch: the product, and how it is cut up.
struct work {
  hopper_product product;
  sm80_rows_plan plan;
  int columns, n_warps, k_warps, split_k;
  int ends, steps, turns; // tiles along M; of K; that a team takes for a tile
  void *parts;
  bool dependent;
};

// Rows of x of a tile.
__device__ inline int rows_of(const work &w, int tile) {
  return min(w.columns, static_cast<int>(w.product.m) - tile % w.ends * w.columns);
}

// Bytes of x in a slot, the same in all.
__device__ inline int x_bytes_of(const work &w) {
  return min(w.columns, static_cast<int>(w.product.m)) * pitch;
}

// What a warp copies next. What is behind the end of K is zeros.
struct source {
  const work &w;
  const seat &at;
  int tile, turn, step, end;

  __device__ source(const work &w, const seat &at) : w(w), at(at), tile(blockIdx.x), turn(0) {
    step = first();
    end = min(w.steps, (static_cast<int>(blockIdx.y) + 1) * w.plan.slice);
  }
  // Rows behind the last one repeat it: nobody reads their sums.
  __device__ void fetch_w(uint32_t slot) const {
    if (!there())
      return;
    const hopper_product &p = w.product;
    const int row = tile / w.ends * w.n_warps * warp_rows + at.mate * warp_rows + at.lane / 8;
    const int64_t k = static_cast<int64_t>(step) * SM80_ROWS_STEP + at.lane % 8 * 16;
    const uint8_t *from = static_cast<const uint8_t *>(p.w) + (k < p.k ? k : 0);
    const uint32_t to = slot + x_bytes_of(w) + (at.mate * warp_rows + at.lane / 8) * pitch + at.lane % 8 * 16;
#pragma unroll
    for (int i = 0; i < warp_rows; i += 4)
      ptx::copy_async_16(to + i * pitch, from + min(row + i, static_cast<int>(p.n) - 1) * p.w_stride, k < p.k ? 16 : 0);
  }
  __device__ void fetch_x(uint32_t slot) const {
    if (!there())
      return;
    const hopper_product &p = w.product;
    const int64_t k = static_cast<int64_t>(step) * SM80_ROWS_STEP + at.lane % 8 * 16;
    const uint8_t *from = static_cast<const uint8_t *>(p.x) + (k < p.k ? k : 0);
    const int first = tile % w.ends * w.columns, count = rows_of(w, tile);
    for (int i = at.mate * 4 + at.lane / 8; i < count; i += w.n_warps * 4)
      ptx::copy_async_16(slot + i * pitch + at.lane % 8 * 16, from + (first + i) * p.x_stride, k < p.k ? 16 : 0);
  }
  __device__ void advance() {
    step += w.k_warps;
    if (++turn < w.turns)
      return;
    turn = 0;
    step = first();
    tile += gridDim.x;
  }

private:
  __device__ bool there() const {
    return tile < w.plan.tiles && step < end;
  }
  __device__ int first() const {
    return blockIdx.y * w.plan.slice + at.team;
  }
};

template <bool kIntegers, int kEights>
__device__ inline void multiply(typename operands<kIntegers>::sum (&sums)[SM80_ROWS_UNITS][kEights][4],
                                const sm80::plain_x<kEights> &x, uint32_t slot, uint32_t w_at) {
  using operands = operands<kIntegers>;
  fragment b[2][kEights];
#pragma unroll
  for (int step = 0; step < SM80_ROWS_STEP / 32; step++) {
    typename operands::left a[SM80_ROWS_UNITS];
    x.load(slot, step, b);
#pragma unroll
    for (int u = 0; u < SM80_ROWS_UNITS; u++) {
      uint32_t words[4];
      ptx::load_matrices(words, w_at + u * 16 * pitch + step * 32);
      a[u] = operands::left_of(words);
    }
#pragma unroll
    for (int i = 0; i < kEights; i++) {
      const typename operands::right right = operands::right_of(b[step % 2][i]);
#pragma unroll
      for (int u = 0; u < SM80_ROWS_UNITS; u++)
        operands::multiply(sums[u][i], a[u], right);
    }
  }
}

// Numbers from one column of sums to the next: no bank conflicts.
__device__ inline int sums_pitch(const work &w) {
  return w.n_warps * warp_rows + 4;
}

// A warp's, as the instructions leave them: [teams][columns][rows].
template <typename T, int kEights>
__device__ inline void keep_sums(const work &w, const T (&sums)[SM80_ROWS_UNITS][kEights][4], T *all, const seat &at,
                                 int rows) {
  const int own = at.lane % 4 * 2, apart = sums_pitch(w);
  T *to = all + (at.team * rows + own) * apart + at.mate * warp_rows + at.lane / 4;
#pragma unroll
  for (int i = 0; i < kEights; i++)
#pragma unroll
    for (int j = 0; j < 2; j++) {
      if (8 * i + own + j >= rows)
        continue;
#pragma unroll
      for (int u = 0; u < SM80_ROWS_UNITS; u++) {
        to[(8 * i + j) * apart + u * 16] = sums[u][i][j];
        to[(8 * i + j) * apart + u * 16 + 8] = sums[u][i][j + 2];
      }
    }
}

// Four neighbours of row m of y, from column n on.
template <typename T>
__device__ inline void write_four(const hopper_product &p, int64_t m, int64_t n, const T (&sum)[4]) {
  float scale[4], bias[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    scale[i] = p.w_scale && n + i < p.n ? p.w_scale[n + i] : 1.0f;
    bias[i] = p.bias && n + i < p.n ? number_load_as(p.bias, n + i, p.bias_type) : 0.0f;
  }
  hopper::write_sums<4>(p, m, n, sum, scale, p.x_scale ? p.x_scale[m] : 1.0f, bias);
}

template <typename T> __device__ inline void add_four(T (&sum)[4], const T *from) {
  const uint4 four = *reinterpret_cast<const uint4 *>(from);
  const T add[4] = {reinterpret_cast<const T &>(four.x), reinterpret_cast<const T &>(four.y),
                    reinterpret_cast<const T &>(four.z), reinterpret_cast<const T &>(four.w)};
#pragma unroll
  for (int i = 0; i < 4; i++)
    sum[i] += add[i];
}

template <typename T> __device__ inline void put_four(T *to, const T (&sum)[4]) {
#pragma unroll
  for (int i = 0; i < 4; i++)
    to[i] = sum[i];
}

// Numbers of a row of slices' sums.
__device__ inline int64_t parts_row(const hopper_product &p) {
  return (p.n + 3) / 4 * 4;
}

// A block's tile, by all of its threads.
template <typename T> __device__ inline void write_tile(const work &w, const T *all, int tile, int rows) {
  const int width = w.n_warps * warp_rows, apart = sums_pitch(w), first_n = tile / w.ends * width;
  const int64_t first_m = tile % w.ends * w.columns, row = parts_row(w.product);
  for (int i = threadIdx.x; i < rows * width / 4; i += blockDim.x) {
    const int column = i / (width / 4), at = i % (width / 4) * 4, n = first_n + at;
    T sum[4] = {};
    for (int team = 0; team < w.k_warps; team++)
      add_four(sum, all + (team * rows + column) * apart + at);
    if (n >= w.product.n)
      continue;
    if (w.split_k == 1)
      write_four(w.product, first_m + column, n, sum);
    else
      put_four(static_cast<T *>(w.parts) + (blockIdx.y * w.product.m + first_m + column) * row + n, sum);
  }
}

// Of a launch with slices, whose work this is.
template <typename T> __global__ void __launch_bounds__(adders) add_slices(const __grid_constant__ work w) {
  const int64_t row = parts_row(w.product), i = (static_cast<int64_t>(blockIdx.x) * adders + threadIdx.x) * 4;
#if __CUDA_ARCH__ >= 900
  ptx::let_next_grid_start();
  ptx::wait_for_previous_grid();
#endif
  if (i >= w.product.m * row)
    return;
  T sum[4] = {};
  for (int slice = 0; slice < w.split_k; slice++)
    add_four(sum, static_cast<const T *>(w.parts) + slice * w.product.m * row + i);
  write_four(w.product, i / row, i % row, sum);
}

constexpr int threads_most(int eights) {
  return eights > 8 ? 256 : eights > 4 ? 384 : 512;
}

template <bool kIntegers, int kEights>
__global__ void __launch_bounds__(threads_most(kEights), 1) run(const __grid_constant__ work w) {
  using T = typename operands<kIntegers>::sum;
  extern __shared__ __align__(16) uint8_t raw[];
  const seat at(w.n_warps);
  const uint32_t shared = ptx::shared_address(raw);
  T *const all_sums = reinterpret_cast<T *>(raw + w.k_warps * w.plan.stages * w.plan.slot_bytes);
  source next(w, at);
  ring to(shared, at.team, w.plan.stages, w.plan.slot_bytes), from = to;
  const int ahead = w.plan.stages - 1;
#if __CUDA_ARCH__ >= 900
  if (w.dependent) {
    source early = next;
    ring place = to;
    for (int i = 0; i < ahead; i++, early.advance())
      early.fetch_w(place.next());
  }
  ptx::let_next_grid_start();
  ptx::wait_for_previous_grid();
#endif
  for (int i = 0; i < ahead; i++, next.advance()) {
    const uint32_t slot = to.next();
    if (!w.dependent)
      next.fetch_w(slot);
    next.fetch_x(slot);
    ptx::copy_async_commit();
  }
  const int end = next.end, first = blockIdx.y * w.plan.slice + at.team;
  // Matrices of a lane's rows: the first eight of 16, the others, and both 16 bytes of K further.
  const int w_offset = x_bytes_of(w) + (at.mate * warp_rows + at.lane % 16) * pitch + at.lane / 16 * 16;
  for (int tile = blockIdx.x; tile < w.plan.tiles; tile += gridDim.x) {
    const int rows = rows_of(w, tile);
    const sm80::plain_x<kEights> x(pitch, rows);
    T sums[SM80_ROWS_UNITS][kEights][4] = {};
    for (int turn = 0, step = first; turn < w.turns; turn++, step += w.k_warps) {
      sm80::wait_for_copies(ahead - 1);
      sm80::team_sync(w.n_warps, at);
      const uint32_t free = to.next();
      next.fetch_w(free);
      next.fetch_x(free);
      next.advance();
      ptx::copy_async_commit();
      const uint32_t slot = from.next();
      if (step < end)
        multiply<kIntegers, kEights>(sums, x, slot, slot + w_offset);
    }
    keep_sums<T, kEights>(w, sums, all_sums, at, rows);
    __syncthreads();
    write_tile(w, all_sums, tile, rows);
    __syncthreads();
  }
}

} // namespace sm80_rows
