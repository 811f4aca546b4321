// Products of two tensors on Hopper, K cut up into slices.
//
// A tile is 128 rows of x by `kColumns` rows of W, a block computes one tile's slice of K. One warp has bulk tensor
// copies of 64 elements of K run ahead into a ring, and two warpgroups multiply 64 rows of x each. Operands that lie by
// columns are copied as they lie: the tensor cores take them so. Two blocks of a cluster have tiles of the same rows of
// W, of which each copies half into both.
#pragma once

#include "../../device/cursor.cuh"
#include "../../device/turned.cuh"
#include "wide.h"

#include <cuda.h>

namespace wide {

constexpr int groups = 2, consumers = 128 * groups, threads = consumers + 128;
constexpr int rows = TENSORS_ROW_PAD, step = WIDE_STEP, row_bytes = 2 * step; // of K
constexpr uint32_t turned_bytes = 64 * row_bytes;                             // of 64 rows of an operand by columns

struct work {
  int64_t pitch, slice; // of partial sums: elements from row to row, and from slice to slice
  float *partials;
  int m;
  int steps, slices, m_tiles, n_tiles;
  bool dependent;
  CUtensorMap x, w;
};

template <int kColumns> struct shared {
  static constexpr int stages = wide_stages(kColumns);
  static constexpr uint32_t x_bytes = rows * row_bytes, w_bytes = kColumns * row_bytes;
  uint8_t ring[stages][x_bytes + w_bytes]; // the swizzle counts from a multiple of 1024
  uint64_t full[stages], empty[stages];
};

// What a block computes.
struct part {
  int m, n;       // first row of x and of W
  int begin, end; // steps of K
  int slice;
};

template <int kColumns> __device__ inline part part_of(const work &w) {
  const int m = blockIdx.x % w.m_tiles, rest = blockIdx.x / w.m_tiles;
  const int n = rest % w.n_tiles, slice = rest / w.n_tiles;
  const auto begin = [&](int of) { return static_cast<int>(static_cast<int64_t>(w.steps) * of / w.slices); };
  return {m * rows, n * kColumns, begin(slice), begin(slice + 1), slice};
}

// `count` rows of an operand from `first` on.
template <bool kTurned, int kCluster>
__device__ inline void copy(uint32_t to, const CUtensorMap *map, int first, int count, int at, uint32_t full) {
  const auto box = [&](uint32_t place, int column, int row) {
    if constexpr (kCluster == 1)
      ptx::copy_tensor(place, map, column, row, full);
    else
      ptx::copy_tensor_to(place, map, column, row, full, (1 << kCluster) - 1);
  };
  if constexpr (kTurned) {
    for (int i = 0; i < count / 64; i++)
      box(to + i * turned_bytes, 2 * (first + 64 * i), at * step);
  } else {
    box(to, at * row_bytes, first);
  }
}

template <int kColumns, bool kXTurned, bool kWTurned, int kCluster>
__device__ inline void produce(const work &w, shared<kColumns> &s, const part &p) {
  constexpr int each = kColumns / kCluster;
  const int rank = kCluster == 1 ? 0 : blockIdx.x % kCluster;
  cursor_of<shared<kColumns>::stages> at;
  for (int i = p.begin; i < p.end; i++, at.advance()) {
    const uint32_t full = ptx::shared_address(&s.full[at.stage]), to = ptx::shared_address(s.ring[at.stage]);
    ptx::barrier_wait(ptx::shared_address(&s.empty[at.stage]), at.phase ^ 1);
    ptx::barrier_expect(full, s.x_bytes + s.w_bytes);
    copy<kXTurned, 1>(to, &w.x, p.m, rows, i, full);
    copy<kWTurned, kCluster>(to + s.x_bytes + rank * each * row_bytes, &w.w, p.n + rank * each, each, i, full);
  }
}

template <bool kXTurned, bool kWTurned, bool kBf16, int kCount>
__device__ inline void multiply_16(float (&sum)[kCount], uint64_t x, uint64_t columns, bool add) {
  if constexpr (kBf16) {
    if constexpr (kXTurned && kWTurned)
      ptx::wgmma_bf16_turned_turned(sum, x, columns, add);
    else if constexpr (kXTurned)
      ptx::wgmma_bf16_turned_rows(sum, x, columns, add);
    else if constexpr (kWTurned)
      ptx::wgmma_bf16_rows_turned(sum, x, columns, add);
    else
      ptx::wgmma_bf16_rows_rows(sum, x, columns, add);
  } else {
    if constexpr (kXTurned && kWTurned)
      ptx::wgmma_f16_turned_turned(sum, x, columns, add);
    else if constexpr (kXTurned)
      ptx::wgmma_f16_turned_rows(sum, x, columns, add);
    else if constexpr (kWTurned)
      ptx::wgmma_f16_rows_turned(sum, x, columns, add);
    else
      ptx::wgmma_f16_rows_rows(sum, x, columns, add);
  }
}

// A stage has been read, by this warp, of all blocks that its copies came from.
template <int kCluster> __device__ inline void give_back(uint32_t empty) {
  if (threadIdx.x % 32 != 0)
    return;
  if constexpr (kCluster == 1) {
    ptx::barrier_arrive(empty);
  } else {
    for (int i = 0; i < kCluster; i++)
      ptx::barrier_arrive_at(ptx::map_to_rank(empty, i));
  }
}

template <int kColumns, bool kXTurned, bool kWTurned, bool kBf16, int kCluster>
__device__ inline void multiply(shared<kColumns> &s, const part &p, int group, float (&sum)[kColumns / 2]) {
  constexpr int x_step = kXTurned ? 128 : 2, w_step = kWTurned ? 128 : 2;
  cursor_of<shared<kColumns>::stages> at;
  int before = -1; // the stage whose products are under way
  for (int i = p.begin; i < p.end; i++, at.advance()) {
    ptx::barrier_wait(ptx::shared_address(&s.full[at.stage]), at.phase);
    const uint32_t ring = ptx::shared_address(s.ring[at.stage]), mine = ring + group * 64 * row_bytes;
    const uint64_t x = kXTurned ? ptx::turned_descriptor(mine, turned_bytes) : ptx::swizzled_descriptor(mine);
    const uint64_t columns =
        kWTurned ? ptx::turned_descriptor(ring + s.x_bytes, turned_bytes) : ptx::swizzled_descriptor(ring + s.x_bytes);
#pragma unroll
    for (int j = 0; j < kColumns / 2; j++)
      ptx::keep(sum[j]);
    ptx::wgmma_fence();
#pragma unroll
    for (int j = 0; j < step / 16; j++)
      multiply_16<kXTurned, kWTurned, kBf16>(sum, x + j * x_step, columns + j * w_step, i > p.begin || j > 0);
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();
    if (before >= 0)
      give_back<kCluster>(ptx::shared_address(&s.empty[before]));
    before = at.stage;
  }
  ptx::wgmma_wait<0>();
#pragma unroll
  for (int j = 0; j < kColumns / 2; j++)
    ptx::keep(sum[j]);
  if (before >= 0)
    give_back<kCluster>(ptx::shared_address(&s.empty[before]));
}

template <int kColumns>
__device__ inline void write(const work &w, const part &p, int warp, const float (&sum)[kColumns / 2]) {
  const int lane = threadIdx.x % 32, row = p.m + warp * 16 + lane / 4;
  if (p.m + warp * 16 >= w.m)
    return;
  float *to = w.partials + p.slice * w.slice + row * w.pitch + p.n + lane % 4 * 2;
#pragma unroll
  for (int j = 0; j < kColumns / 8; j++) {
    *reinterpret_cast<float2 *>(to + 8 * j) = make_float2(sum[4 * j], sum[4 * j + 1]);
    *reinterpret_cast<float2 *>(to + 8 * w.pitch + 8 * j) = make_float2(sum[4 * j + 2], sum[4 * j + 3]);
  }
}

template <int kColumns, bool kXTurned, bool kWTurned, bool kBf16, int kCluster>
__global__ void __launch_bounds__(threads, 1) run(const __grid_constant__ work w) {
  extern __shared__ uint8_t raw[];
  const uint32_t begin = ptx::shared_address(raw), skipped = ((begin + 1023) & ~1023u) - begin;
  auto &s = *reinterpret_cast<shared<kColumns> *>(raw + skipped);
  if (threadIdx.x == 0) {
    for (int i = 0; i < s.stages; i++) {
      ptx::barrier_init(ptx::shared_address(&s.full[i]), 1);
      ptx::barrier_init(ptx::shared_address(&s.empty[i]), consumers / 32 * kCluster);
    }
    ptx::fence_barrier_init();
  }
  if (threadIdx.x == consumers) {
    ptx::prefetch_tensor_map(&w.x);
    ptx::prefetch_tensor_map(&w.w);
  }
  __syncthreads();
  if constexpr (kCluster > 1) {
    ptx::cluster_arrive();
    ptx::cluster_wait();
  }
  ptx::let_next_grid_start();
  if (w.dependent)
    ptx::wait_for_previous_grid();
  const part p = part_of<kColumns>(w);
  if (threadIdx.x >= consumers) {
    ptx::registers_decrease<40>();
    if (threadIdx.x == consumers)
      produce<kColumns, kXTurned, kWTurned, kCluster>(w, s, p);
    __syncwarp();
  } else {
    ptx::registers_increase<232>();
    const int warp = threadIdx.x / 32;
    float sum[kColumns / 2];
    multiply<kColumns, kXTurned, kWTurned, kBf16, kCluster>(s, p, warp / 4, sum);
    write<kColumns>(w, p, warp, sum);
  }
  if constexpr (kCluster > 1) { // nobody arrives at the barriers of a block that has gone
    ptx::cluster_arrive();
    ptx::cluster_wait();
  }
}

} // namespace wide
