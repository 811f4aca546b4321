// The kernel of many/config.h.
#pragma once

#include "../../../device/cursor.cuh"
#include "../../../device/ptx.cuh"
#include "../../../device/wgmma.cuh"
#include "../hopper/output.cuh"
#include "config.h"

#include <cuda.h>

namespace many {

constexpr int groups = 2, consumers = 128 * groups, threads = consumers + 128;
constexpr int staging_pitch = 144; // bytes: neighbouring rows in other banks

// A launch: the product, how it is cut up, and W and x for the copy engine.
struct work {
  hopper_product product;
  int steps;                   // of K
  int m_tiles, n_tiles, group; // tiles of x are taken `group` at a time for each tile of W
  CUtensorMap w, x;
};

struct tile {
  int m, n; // first row of x and of W
};

template <int kColumns> __device__ inline tile tile_at(const work &w, int index) {
  const int in_group = w.group * w.n_tiles, first = index / in_group * w.group;
  const int rows = min(w.group, w.m_tiles - first), place = index % in_group;
  return {(first + place % rows) * MANY_ROWS, place / rows * kColumns};
}

template <int kColumns> struct shared {
  static constexpr int stages = kColumns == 256 ? MANY_STAGES_WIDE : MANY_STAGES;
  static constexpr uint32_t x_bytes = MANY_ROWS * MANY_STEP, w_bytes = kColumns * MANY_STEP;
  uint8_t ring[stages][x_bytes + w_bytes]; // the swizzle counts from a multiple of 1024
  uint8_t staging[consumers / 32][16][staging_pitch];
  float scale[kColumns], bias[kColumns]; // of the tile's rows of W
  uint64_t full[stages], empty[stages];
};

template <int kColumns> __device__ inline void produce(const work &w, shared<kColumns> &s) {
  cursor_of<shared<kColumns>::stages> at;
  for (int index = blockIdx.x; index < w.m_tiles * w.n_tiles; index += gridDim.x) {
    const tile t = tile_at<kColumns>(w, index);
    for (int step = 0; step < w.steps; step++, at.advance()) {
      const uint32_t full = ptx::shared_address(&s.full[at.stage]), to = ptx::shared_address(s.ring[at.stage]);
      ptx::barrier_wait(ptx::shared_address(&s.empty[at.stage]), at.phase ^ 1);
      ptx::barrier_expect(full, s.x_bytes + s.w_bytes);
      ptx::copy_tensor(to, &w.x, step * MANY_STEP, t.m, full);
      ptx::copy_tensor(to + s.x_bytes, &w.w, step * MANY_STEP, t.n, full);
    }
  }
}

// A tile's sums of one warpgroup: 64 rows of x by kColumns rows of W.
template <int kColumns>
__device__ inline void multiply(const work &w, shared<kColumns> &s, cursor_of<shared<kColumns>::stages> &at, int group,
                                int (&sum)[kColumns / 2]) {
  int before = -1; // the stage whose products are under way
  for (int step = 0; step < w.steps; step++, at.advance()) {
    ptx::barrier_wait(ptx::shared_address(&s.full[at.stage]), at.phase);
    const uint32_t ring = ptx::shared_address(s.ring[at.stage]);
    const uint64_t x = ptx::swizzled_descriptor(ring + group * 64 * MANY_STEP);
    const uint64_t columns = ptx::swizzled_descriptor(ring + s.x_bytes);
#pragma unroll
    for (int i = 0; i < kColumns / 2; i++)
      ptx::keep(sum[i]);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < MANY_STEP / 32; i++)
      ptx::wgmma_s8(sum, x + 2 * i, columns + 2 * i, step > 0 || i > 0);
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();
    if (before >= 0 && threadIdx.x % 32 == 0)
      ptx::barrier_arrive(ptx::shared_address(&s.empty[before]));
    before = at.stage;
  }
  ptx::wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < kColumns / 2; i++)
    ptx::keep(sum[i]);
  if (threadIdx.x % 32 == 0)
    ptx::barrier_arrive(ptx::shared_address(&s.empty[before]));
}

// Scales and bias of the tile's columns of y, by the consumers.
template <int kColumns> __device__ inline void fetch_columns(const hopper_product &p, shared<kColumns> &s, int first) {
  for (int i = threadIdx.x; i < kColumns; i += consumers) {
    const int64_t n = min(static_cast<int64_t>(first + i), p.n - 1);
    s.scale[i] = p.w_scale ? p.w_scale[n] : 1.0f;
    s.bias[i] = p.bias ? number_load_as(p.bias, n, p.bias_type) : 0.0f;
  }
}

template <typename Y> __device__ inline Y finish(int sum, float w_scale, float x_scale, float bias) {
  Y out;
  if constexpr (sizeof(Y) == 4)
    out = number_scaled_exactly(sum, w_scale, x_scale, bias);
  else
    number_store(&out, number_scaled(static_cast<float>(sum), w_scale, x_scale, bias));
  return out;
}

// 16 bytes of a row of y from column n on, as far as it goes.
template <typename Y> __device__ inline void write_vector(const hopper_product &p, int64_t m, int64_t n, uint4 vector) {
  constexpr int count = 16 / sizeof(Y);
  if (m >= p.m)
    return;
  Y *y = reinterpret_cast<Y *>(hopper::row_of_y(p, m)) + n;
  if (n + count <= p.n && reinterpret_cast<uintptr_t>(y) % 16 == 0) {
    *reinterpret_cast<uint4 *>(y) = vector;
    return;
  }
  const Y *elements = reinterpret_cast<const Y *>(&vector);
  for (int i = 0; i < count && n + i < p.n; i++)
    y[i] = elements[i];
}

// A warp's 16 rows of y, 128 bytes of each at a time, through shared memory so that whole runs are written.
template <typename Y, int kColumns>
__device__ inline void write(const hopper_product &p, shared<kColumns> &s, tile t, int warp,
                             const int (&sum)[kColumns / 2]) {
  constexpr int width = 128 / sizeof(Y), per_vector = 16 / sizeof(Y);
  const int lane = threadIdx.x % 32, row = lane / 4, pair = lane % 4 * 2;
  const int64_t first_m = t.m + warp * 16;
  auto &staging = s.staging[warp];
  float x_scale[2];
#pragma unroll
  for (int i = 0; i < 2; i++)
    x_scale[i] = p.x_scale ? p.x_scale[min(first_m + row + 8 * i, p.m - 1)] : 1.0f;
#pragma unroll
  for (int first = 0; first < kColumns; first += width) {
#pragma unroll
    for (int c = 0; c < width; c += 8) {
      const int column = first + c + pair;
      const float2 scale = *reinterpret_cast<const float2 *>(&s.scale[column]);
      const float2 bias = *reinterpret_cast<const float2 *>(&s.bias[column]);
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const int at = (first + c) / 2 + 2 * i;
        struct alignas(2 * sizeof(Y)) {
          Y elements[2];
        } out = {
            {finish<Y>(sum[at], scale.x, x_scale[i], bias.x), finish<Y>(sum[at + 1], scale.y, x_scale[i], bias.y)}};
        *reinterpret_cast<decltype(out) *>(&staging[row + 8 * i][(c + pair) * sizeof(Y)]) = out;
      }
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int line = 4 * i + lane / 8, vector = lane % 8;
      write_vector<Y>(p, first_m + line, t.n + first + vector * per_vector,
                      *reinterpret_cast<const uint4 *>(&staging[line][vector * 16]));
    }
    __syncwarp();
  }
}

template <typename Y, int kColumns> __device__ inline void consume(const work &w, shared<kColumns> &s) {
  const int warp = threadIdx.x / 32;
  cursor_of<shared<kColumns>::stages> at;
  for (int index = blockIdx.x; index < w.m_tiles * w.n_tiles; index += gridDim.x) {
    const tile t = tile_at<kColumns>(w, index);
    int sum[kColumns / 2];
    ptx::named_barrier_sync(1, consumers); // the last tile's scales have been read
    fetch_columns(w.product, s, t.n);
    multiply(w, s, at, warp / 4, sum);
    ptx::named_barrier_sync(1, consumers);
    write<Y>(w.product, s, t, warp, sum);
  }
}

template <typename Y, int kColumns> __global__ void __launch_bounds__(threads, 1) run(const __grid_constant__ work w) {
  extern __shared__ uint8_t raw[];
  const uint32_t begin = ptx::shared_address(raw), skipped = ((begin + 1023) & ~1023u) - begin;
  auto &s = *reinterpret_cast<shared<kColumns> *>(raw + skipped);
  if (threadIdx.x == 0) {
    for (int i = 0; i < s.stages; i++) {
      ptx::barrier_init(ptx::shared_address(&s.full[i]), 1);
      ptx::barrier_init(ptx::shared_address(&s.empty[i]), consumers / 32);
    }
    ptx::fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x >= consumers) {
    ptx::registers_decrease<40>();
    if (threadIdx.x == consumers)
      produce(w, s);
  } else {
    ptx::registers_increase<232>();
    consume<Y>(w, s);
  }
}

} // namespace many
