// Kernel of int2a8.h.
//
// Products are exact sums of integers: u8 codes 64 c (a shift and a mask away from the packed word) times s8 x. Sums
// start from minus the sum of x, which makes c - 1 of c, and from the bits of a large power of two, which makes them
// f32 numbers without a conversion, whose unit takes the 64 back. Then they are scaled and added up in f32.
//
// A warpgroup takes a tile of 64 rows of W x 256 of K at a time, 16 rows a warp. Each warp fills a ring of its own by
// bulk copies.
#pragma once

#include "int2a8.h"
#include "int2a8_layout.h"
#include "number.cuh"
#include "ptx.cuh"
#include "wgmma.cuh"

namespace int2a8 {

constexpr int groups = INT2A8_GROUPS, threads = 128 * groups, warps = 4 * groups;
constexpr int warp_bytes = INT2A8_QUARTER_BYTES, tile_groups = INT2A8_TILE_K / GEMM_GROUP;
constexpr int pitch = INT2A8_BLOCK_ROWS + 4;

struct work {
  int2a8_product product;
  int2a8_plan plan;
  int blocks, split_log2;
};

// What of the cluster's tiles the blocks and warpgroups have; int2a8_plan.
struct share {
  int first_tile, tiles; // of a block of rows
  int begin, end;        // of the block's blocks * tiles
  int first_block;       // of rows, to which `begin` belongs

  __device__ share(const work &w, int rank, int group) {
    first_tile = w.plan.tiles * rank >> w.split_log2;
    tiles = (w.plan.tiles * (rank + 1) >> w.split_log2) - first_tile;
    begin = w.blocks * tiles * group / groups, end = w.blocks * tiles * (group + 1) / groups;
    first_block = begin / tiles;
  }
};

// ---- x

// Bits of 1.5 * 2^17, an f32 whose last bit counts 1/64.
constexpr int magic = (127 + 17) << 23 | 0x400000;
constexpr float magic_value = 1.5f * 131072;

// In shared memory, each for a group after the other: x, swizzled, 128 bytes a column; what the sums start from,
// [eight columns][4] quads for lanes of the same lane % 4.
template <int kEights> struct x_place {
  static constexpr int codes_bytes = kEights * 8 * GEMM_GROUP, starts_bytes = kEights * 4 * 16;
  static_assert(codes_bytes + starts_bytes == kEights * INT2A8_GROUP_BYTES);
  uint32_t codes, starts;

  __device__ x_place of(int group) const {
    return {codes + group * codes_bytes, starts + group * starts_bytes};
  }
};

// Turns of eight lanes, which take a group of a row at a time.
struct turn {
  int row, group;

  __device__ explicit turn(int x_groups) {
    row = threadIdx.x / 8 / x_groups, group = threadIdx.x / 8 % x_groups;
  }
  __device__ void advance(int x_groups, int rows_on, int groups_on) {
    row += rows_on, group += groups_on;
    if (group >= x_groups)
      row++, group -= x_groups;
  }
};

__device__ inline uint32_t chunk_place(uint32_t codes, int row) {
  return codes + row * GEMM_GROUP + (threadIdx.x % 8 ^ row % 8) * 16;
}

// Sums of x, of what this lane has fetched itself.
__device__ inline void store_start(uint32_t codes, uint32_t starts, int row) {
  constexpr int ones = 0x01010101;
  const int4 x = ptx::load_shared_int4(chunk_place(codes, row));
  int sum = __dp4a(x.x, ones, __dp4a(x.y, ones, __dp4a(x.z, ones, __dp4a(x.w, ones, 0))));
#pragma unroll
  for (int lanes = 4; lanes > 0; lanes /= 2)
    sum += __shfl_xor_sync(0xffu << (threadIdx.x % 32 / 8 * 8), sum, lanes);
  if (threadIdx.x % 8 < 2)
    ptx::store_shared(starts + row / 2 * 16 + threadIdx.x % 8 * 8 + row % 2 * 4, magic - 64 * sum);
}

// ---- products

// Begins the products of a warp's 16 rows of W x 128 of K by x, of which this is the descriptor.
template <int kEights> __device__ inline void multiply(int (&sum)[4 * kEights], const int4 &words, uint64_t x) {
  const uint32_t w[4] = {static_cast<uint32_t>(words.x), static_cast<uint32_t>(words.y), static_cast<uint32_t>(words.z),
                         static_cast<uint32_t>(words.w)};
  uint32_t a[4][4];
#pragma unroll
  for (int field = 0; field < 4; field++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      a[field][i] = w[i] << (6 - 2 * field) & 0xc0c0c0c0;
      ptx::keep(a[field][i]);
    }
  }
#pragma unroll
  for (int i = 0; i < 4 * kEights; i++)
    ptx::keep(sum[i]);
  ptx::wgmma_fence();
#pragma unroll
  for (int field = 0; field < 4; field++)
    ptx::wgmma_u8_s8(sum, a[field], x + 2 * field);
  ptx::wgmma_commit();
}

template <int kEights> __device__ inline void load_starts(int (&sum)[4 * kEights], uint32_t at) {
#pragma unroll
  for (int t = 0; t < kEights; t++) {
    const int4 from = ptx::load_shared_int4(at + t * 64);
    sum[4 * t] = from.x, sum[4 * t + 1] = from.y, sum[4 * t + 2] = from.z, sum[4 * t + 3] = from.w;
  }
}

// Adds the scaled sums of a group. scales: of the lane's two rows.
template <int kCount> __device__ inline void add_group(float (&sum)[kCount], int (&group)[kCount], uint32_t scales) {
  const float2 rows = __half22float2(reinterpret_cast<const __half2 &>(scales));
#pragma unroll
  for (int i = 0; i < kCount; i++) {
    ptx::keep(group[i]);
    sum[i] = fmaf(__int_as_float(group[i]) - magic_value, i % 4 < 2 ? rows.x : rows.y, sum[i]);
  }
}

// ---- sums to y

// 16 rows of a slot, from `row` on.
template <int kEights> __device__ inline void store_sums(float (&sum)[4 * kEights], float *slot, int row, int lane) {
#pragma unroll
  for (int t = 0; t < kEights; t++) {
    float *const at = slot + (8 * t + lane % 4 * 2) * pitch + row + lane / 4;
    at[0] = sum[4 * t];
    at[pitch] = sum[4 * t + 1];
    at[8] = sum[4 * t + 2];
    at[pitch + 8] = sum[4 * t + 3];
#pragma unroll
    for (int i = 0; i < 4; i++)
      sum[4 * t + i] = 0.0f;
  }
}

// Sums of a block of rows that a block of the cluster has: of one warpgroup in its last slot, and of those whose bit is
// set in `more`, which go on with it, in their first.
struct part {
  uint32_t address; // in that block
  uint32_t more;
};

__device__ inline part find_part(const work &w, uint32_t slots_at, int slot_bytes, int rank, int block) {
  int group = 0;
  uint32_t more = 0;
  share of(w, rank, 0);
  const int first = block * of.tiles, end = first + of.tiles;
#pragma unroll
  for (int i = 1; i < groups; i++) {
    const share next(w, rank, i);
    if (next.begin <= first)
      group = i, of = next;
    else if (next.begin < end && next.begin < next.end)
      more |= 1 << i;
  }
  const uint32_t here = slots_at + (group * w.plan.slots + block - of.first_block) * slot_bytes;
  return {ptx::map_to_rank(here, rank), more};
}

// This block's share of the cluster's y. slot_group: bytes from a warpgroup's first slot to the next one's.
__device__ inline void write_y(const work &w, const part (&parts)[INT2A8_SPLIT_MOST][INT2A8_BLOCKS_MOST],
                               uint32_t slots_at, int slot_group, int rank) {
  constexpr int batch = 4;
  const int2a8_product &p = w.product;
  const int rows = w.blocks * static_cast<int>(p.m), ranks = 1 << w.split_log2, four = threadIdx.x % 16 * 4,
            end = rows * (rank + 1) >> w.split_log2;
#pragma unroll 1
  for (int i = (rows * rank >> w.split_log2) + threadIdx.x / 16; i < end; i += threads / 16) {
    const int m = i / w.blocks, block = i % w.blocks;
    const int64_t n = (static_cast<int64_t>(blockIdx.x) * w.blocks + block) * INT2A8_BLOCK_ROWS + four;
    if (n >= p.n)
      continue;
    const uint32_t at = (m * pitch + four) * 4;
    float sum[4] = {};
    const auto add = [&](const int4 &found) {
      sum[0] += __int_as_float(found.x), sum[1] += __int_as_float(found.y);
      sum[2] += __int_as_float(found.z), sum[3] += __int_as_float(found.w);
    };
#pragma unroll 1
    for (int r = 0; r < ranks; r += batch) {
      int4 found[batch];
      part from[batch];
#pragma unroll
      for (int j = 0; j < batch; j++) {
        from[j] = parts[min(r + j, ranks - 1)][block];
        found[j] = ptx::load_cluster_int4(from[j].address + at);
      }
#pragma unroll
      for (int j = 0; j < batch; j++) {
        if (r + j >= ranks)
          break;
        add(found[j]);
#pragma unroll 1
        for (uint32_t more = from[j].more; more != 0; more &= more - 1)
          add(ptx::load_cluster_int4(ptx::map_to_rank(slots_at + (__ffs(more) - 1) * slot_group, r + j) + at));
      }
    }
    const float scale = p.x_scale[m];
#pragma unroll
    for (int j = 0; j < 4; j++)
      sum[j] =
          number_scaled(sum[j], 1.0f, scale, p.bias ? number_load_as(p.bias, min(n + j, p.n - 1), p.bias_type) : 0);
    uint8_t *row = static_cast<uint8_t *>(p.y) + m * p.y_stride;
    if (p.y_type == GEMM_F32)
      number_store4(reinterpret_cast<float *>(row), n, p.n, sum);
    else if (p.y_type == GEMM_F16)
      number_store4(reinterpret_cast<__half *>(row), n, p.n, sum);
    else
      number_store4(reinterpret_cast<__nv_bfloat16 *>(row), n, p.n, sum);
  }
}

// ---- the whole

template <int kEights> __global__ void __launch_bounds__(threads, 1) run(const __grid_constant__ work w) {
  using place = x_place<kEights>;
  constexpr int slot_bytes = 8 * kEights * pitch * 4;
  constexpr int early = 4; // tiles that are asked for before x
  extern __shared__ __align__(1024) uint8_t raw[];
  __shared__ uint64_t arrived[warps][INT2A8_STAGES_MOST];
  __shared__ part parts[INT2A8_SPLIT_MOST][INT2A8_BLOCKS_MOST];
  ptx::let_next_grid_start();
  // The same for all lanes, and said to be: what follows from it is computed once a warp.
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), group = warp / 4, quarter = warp % 4;
  const int rank = static_cast<int>(blockIdx.y), lane = threadIdx.x % 32;
  const int m = static_cast<int>(w.product.m), stages = w.plan.stages;
  const share mine(w, rank, group);
  const int first_tile = mine.first_tile, tiles = mine.tiles, first = mine.begin - mine.first_block * tiles;
  const uint32_t x_at = ptx::shared_address(raw), ring_at = x_at + w.plan.x_bytes;
  const uint32_t slots_at = ring_at + warps * stages * warp_bytes;
  const uint32_t ring = ring_at + warp * stages * warp_bytes, barriers = ptx::shared_address(arrived[warp]);

  // Rows behind the last are those of the last block once more.
  const int cluster_block = static_cast<int>(blockIdx.x) * w.blocks;
  int fetch_left = mine.end - mine.begin, fetch_block = min(cluster_block + mine.first_block, w.plan.row_blocks - 1),
      fetch_tile = first;
  const uint8_t *from = static_cast<const uint8_t *>(w.product.tiles) + quarter * INT2A8_QUARTER_BYTES +
                        (static_cast<int64_t>(fetch_block) * w.plan.tiles + first_tile + first) * INT2A8_TILE_BYTES;
  const uint64_t policy = ptx::policy_evict_first();
  const auto fetch = [&](uint32_t to, uint32_t barrier) {
    if (fetch_left-- <= 0)
      return;
    if (lane == 0) {
      ptx::barrier_expect(barrier, warp_bytes);
      ptx::copy_bulk(to, from, warp_bytes, barrier, policy);
    }
    from += INT2A8_TILE_BYTES;
    if (++fetch_tile == tiles) {
      fetch_tile = 0;
      from += (++fetch_block < w.plan.row_blocks ? w.plan.tiles - tiles : -tiles) * INT2A8_TILE_BYTES;
    }
  };
  if (lane == 0) {
#pragma unroll 1
    for (int i = 0; i < stages; i++)
      ptx::barrier_init(barriers + i * 8, 1);
    ptx::fence_barrier_init();
  }
  __syncwarp();
  const auto fetch_stages = [&](int i, int end) {
#pragma unroll 1
    for (; i < end; i++)
      fetch(ring + i * warp_bytes, barriers + i * 8);
  };
  fetch_stages(0, min(early, stages));
  ptx::wait_for_previous_grid();

  const int x_groups = tile_groups * tiles, rows_on = threads / 8 / x_groups, groups_on = threads / 8 % x_groups;
  const place x = {x_at, x_at + x_groups * place::codes_bytes};
  const int8_t *const x_from = w.product.x + static_cast<int64_t>(first_tile) * INT2A8_TILE_K + threadIdx.x % 8 * 16;
#pragma unroll 1
  for (turn at(x_groups); at.row < m; at.advance(x_groups, rows_on, groups_on))
    ptx::copy_async_16(chunk_place(x.of(at.group).codes, at.row),
                       x_from + at.row * w.product.x_stride + at.group * GEMM_GROUP, 16);
  fetch_stages(early, stages);
#pragma unroll 1
  for (int i = threadIdx.x; i < w.blocks << w.split_log2; i += threads) {
    const int of_rank = i & ((1 << w.split_log2) - 1), block = i >> w.split_log2;
    parts[of_rank][block] = find_part(w, slots_at, slot_bytes, of_rank, block);
  }
  ptx::copy_async_wait_all();
#pragma unroll 1
  for (turn at(x_groups); at.row < m; at.advance(x_groups, rows_on, groups_on)) {
    const place here = x.of(at.group);
    store_start(here.codes, here.starts, at.row);
  }
  ptx::fence_async_shared();
  __syncthreads();

  const uint32_t ring_end = ring + stages * warp_bytes, scales_place = INT2A8_QUARTER_SCALES + lane / 4 * 4 - lane * 16;
  const place my_x = {x.codes, x.starts + lane % 4 * 16};
  place x_of_tile = my_x.of(tile_groups * first);
  float sum[4 * kEights] = {};
  int block = mine.first_block, tile = first;
  uint32_t at = ring, barrier = barriers, parity = 0;
#pragma unroll 1
  for (int left = mine.end - mine.begin; left > 0; left--) {
    ptx::barrier_wait(barrier, parity);
    const uint32_t here = at + lane * 16;
    const int4 words[2] = {ptx::load_shared_int4(here), ptx::load_shared_int4(here + INT2A8_UNIT_BYTES)};
    const uint32_t scales[2] = {ptx::load_shared(here + scales_place),
                                ptx::load_shared(here + scales_place + INT2A8_UNIT_SCALES)};
    const place second = x_of_tile.of(1);
    int sum_of[2][4 * kEights];
    load_starts<kEights>(sum_of[0], x_of_tile.starts);
    multiply<kEights>(sum_of[0], words[0], ptx::swizzled_descriptor(x_of_tile.codes));
    load_starts<kEights>(sum_of[1], second.starts);
    multiply<kEights>(sum_of[1], words[1], ptx::swizzled_descriptor(second.codes));
    __syncwarp();
    fetch(at, barrier);
    at += warp_bytes, barrier += 8;
    if (at == ring_end)
      at = ring, barrier = barriers, parity ^= 1;
    ptx::wgmma_wait<1>();
    add_group(sum, sum_of[0], scales[0]);
    ptx::wgmma_wait<0>();
    add_group(sum, sum_of[1], scales[1]);
    x_of_tile = second.of(1);
    if (++tile == tiles || left == 1) {
      float *const to = reinterpret_cast<float *>(
          raw + (slots_at - x_at + (group * w.plan.slots + block - mine.first_block) * slot_bytes));
      store_sums<kEights>(sum, to, quarter * INT2A8_UNIT_ROWS, lane);
      tile = 0;
      x_of_tile = my_x;
      block++;
    }
  }
  if (w.split_log2 > 0) {
    ptx::cluster_arrive();
    ptx::cluster_wait();
  } else {
    __syncthreads();
  }
  write_y(w, parts, slots_at, w.plan.slots * slot_bytes, rank);
  if (w.split_log2 > 0) { // nobody leaves while another reads its sums
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();
  }
}

} // namespace int2a8
