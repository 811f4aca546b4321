// Kernel of int2a8/launch.h.
//
// Products are exact sums of integers: u8 codes 64 c (a shift and a mask away from the packed word) times s8 x. Sums
// start from minus the sum of x, which makes c - 1 of c, and from the bits of a large power of two, which makes them
// f32 numbers without a conversion, whose unit takes the 64 back. Then they are scaled and added up in f32.
//
// A warpgroup takes a tile of 64 rows of W x 256 of K at a time, 16 rows a warp. One more warp has tiles copied ahead.
#pragma once

#include "../../../device/number.cuh"
#include "../../../device/ptx.cuh"
#include "../../../device/wgmma.cuh"
#include "../../tiles.h"
#include "../int2/a8_layout.h"
#include "../int2/cut.cuh"
#include "config.h"

namespace int2a8 {

constexpr int groups = INT2A8_GROUPS, threads = 128 * groups, warps = 4 * groups;
constexpr int tile_groups = INT2A8_TILE_K / GEMM_GROUP;
constexpr int pitch = INT2A8_BLOCK_ROWS + 4;
constexpr int ring_barrier = 1, x_barrier = 2, consumer_barrier = 3;

struct work {
  tiles_product product;
  int2a8_plan plan;
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

// 16 numbers of each of some rows of x, eight lanes a group, from memory to a block's shared memory, with what sums
// start from.
template <int kEights> struct x_chunk {
  static constexpr int rows = kEights == 2 ? 16 : 8;
  int4 held[rows];

  __device__ void load(const tiles_product &p, int first, const int8_t *from) {
#pragma unroll
    for (int row = 0; row < rows; row++)
      if (first + row < static_cast<int>(p.m))
        held[row] = __ldg(reinterpret_cast<const int4 *>(from + (first + row) * p.x_stride));
  }
  __device__ void store(const tiles_product &p, int first, const x_place<kEights> &at) const {
    constexpr int ones = 0x01010101;
    const int chunk = threadIdx.x % 8;
#pragma unroll
    for (int row = 0; row < rows; row++) {
      if (first + row >= static_cast<int>(p.m))
        break;
      const int4 x = held[row];
      ptx::store_shared_int4(at.codes + (first + row) * GEMM_GROUP + (chunk ^ row % 8) * 16, x);
      int sum = __dp4a(x.x, ones, __dp4a(x.y, ones, __dp4a(x.z, ones, __dp4a(x.w, ones, 0))));
#pragma unroll
      for (int lanes = 4; lanes > 0; lanes /= 2)
        sum += __shfl_xor_sync(0xffffffff, sum, lanes);
      if (chunk < 2)
        ptx::store_shared(at.starts + (first + row) / 2 * 16 + chunk * 8 + row % 2 * 4, magic - 64 * sum);
    }
  }
};

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

// ---- the whole

// Tiles under way: of each warpgroup, whole ones.
struct rings {
  uint64_t full[groups][INT2A8_STAGES_MOST], empty[groups][INT2A8_STAGES_MOST];
};

__device__ inline uint32_t ring_of(const work &w, uint32_t x_at, int group) {
  return x_at + w.plan.x_bytes + group * w.plan.stages * INT2A8_TILE_BYTES;
}

// A lane a warpgroup has tiles copied, as far ahead as there is room; so who computes is never held up by the copy
// engine. All but the first are asked for behind x, which would come behind them.
__device__ inline void produce(const work &w, uint32_t x_at, rings &rings) {
  const int lane = threadIdx.x % 32, group = lane % groups, stages = w.plan.stages;
  const int2_cut &cut = w.plan.cut;
  const int2_share mine = int2_cut_share(&cut, groups, blockIdx.y, group);
  uint32_t tile = mine.begin - mine.first_block * mine.tiles;
  // Rows behind the last are those of the last block once more.
  uint32_t block = min(blockIdx.x * cut.blocks + mine.first_block, cut.row_blocks - 1);
  const uint8_t *from = static_cast<const uint8_t *>(w.product.tiles) +
                        static_cast<uint64_t>(block * cut.tiles + mine.first_tile + tile) * INT2A8_TILE_BYTES;
  const uint64_t policy = ptx::policy_evict_first();
  const uint32_t ring = ring_of(w, x_at, group);
  const uint32_t full = ptx::shared_address(rings.full[group]), empty = full + sizeof rings.full;
  int stage = 0;
  uint32_t parity = 1; // of a barrier that nothing has come to, the phase before the first counts as complete
  const auto copy = [&] {
    ptx::barrier_wait(empty + stage * 8, parity);
    ptx::barrier_expect(full + stage * 8, INT2A8_TILE_BYTES);
    ptx::copy_bulk(ring + stage * INT2A8_TILE_BYTES, from, INT2A8_TILE_BYTES, full + stage * 8, policy);
    if (++stage == stages)
      stage = 0, parity ^= 1;
    from += INT2A8_TILE_BYTES;
    if (++tile == mine.tiles) {
      const int more = ++block < cut.row_blocks ? static_cast<int>(cut.tiles) : 0;
      from += (more - static_cast<int>(mine.tiles)) * INT2A8_TILE_BYTES;
      tile = 0;
    }
  };
  int left = lane < groups ? static_cast<int>(mine.end - mine.begin) : 0;
  if (left > 0)
    copy();
  __syncwarp();
  ptx::named_barrier_sync(x_barrier, threads + 32);
#pragma unroll 1
  for (; left > 1; left--)
    copy();
}

// Barriers of a warpgroup's stages, by a lane of each of its warps.
__device__ __forceinline__ void make_barriers(uint32_t full, uint32_t empty, int stages, int quarter) {
#pragma unroll 1
  for (int i = quarter; i < stages; i += 4) {
    ptx::barrier_init(full + i * 8, 1);
    ptx::barrier_init(empty + i * 8, 4);
  }
  ptx::fence_barrier_init();
}

template <int kEights> constexpr int slot_bytes = 8 * kEights *pitch * 4;

// x of the rank's groups and its scales to shared memory, and which parts of y the block has to add up. Behind the
// first loads of x the supplier is let go.
template <int kEights>
__device__ __forceinline__ void stage_x(const work &w, const int2_share &mine, const x_place<kEights> &x, int chunks,
                                        uint32_t slots_at, int warp, int lane, int2_parts &parts, float *x_scale) {
  const int m = static_cast<int>(w.product.m);
  const int8_t *const x_from = static_cast<const int8_t *>(w.product.x) + mine.first_tile * INT2A8_TILE_K;
  // Whole warps: lanes behind the last number take some once more.
  const auto chunk_of = [&](int i) { return i < chunks ? i : i - 16; };
  static_assert(INT2A8_TILE_K % (16 * 16) == 0, "there are whole half warps of them");
  x_chunk<kEights> held;
  int turn = warp * 32, row = 0;
  if (turn < chunks)
    held.load(w.product, 0, x_from + chunk_of(turn + lane) * 16);
  const float my_scale = threadIdx.x < m ? w.product.x_scale[threadIdx.x] : 0.0f;
  ptx::named_barrier_arrive(x_barrier, threads + 32);
  int2_list_parts<groups, threads>(w.plan.cut, slots_at, slot_bytes<kEights>, parts);
#pragma unroll 1
  while (turn < chunks) {
    held.store(w.product, row, x.of(chunk_of(turn + lane) / 8));
    row += held.rows;
    if (row >= m)
      row = 0, turn += threads;
    if (turn < chunks)
      held.load(w.product, row, x_from + chunk_of(turn + lane) * 16);
  }
  if (threadIdx.x < m)
    x_scale[threadIdx.x] = my_scale;
  ptx::fence_async_shared();
  ptx::named_barrier_sync(consumer_barrier, threads);
}

template <int kEights> __global__ void __launch_bounds__(threads + 32, 1) run(const __grid_constant__ work w) {
  using place = x_place<kEights>;
  extern __shared__ __align__(1024) uint8_t raw[];
  __shared__ rings rings;
  __shared__ int2_parts parts;
  __shared__ float x_scale[8 * kEights];
  ptx::let_next_grid_start();
  const int2_cut &cut = w.plan.cut;
  // The same for all lanes, and said to be: what follows from it is computed once a warp.
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), group = warp / 4, quarter = warp % 4;
  const int lane = threadIdx.x % 32, stages = w.plan.stages;
  const uint32_t x_at = ptx::shared_address(raw);
  if (warp == warps) {
    ptx::named_barrier_sync(ring_barrier, threads + 32);
    produce(w, x_at, rings);
    return;
  }
  const uint32_t full = ptx::shared_address(rings.full[group]), empty = full + sizeof rings.full;
  if (lane == 0)
    make_barriers(full, empty, stages, quarter);
  __syncwarp();
  ptx::named_barrier_arrive(ring_barrier, threads + 32);
  const int2_share mine = int2_cut_share(&cut, groups, blockIdx.y, group);
  const int tiles = mine.tiles, first = mine.begin - mine.first_block * mine.tiles;
  const uint32_t ring = ring_of(w, x_at, group), slots_at = ring_of(w, x_at, groups);
  ptx::wait_for_previous_grid();
  const int x_groups = tile_groups * tiles;
  const place x = {x_at, x_at + x_groups * place::codes_bytes};
  stage_x<kEights>(w, mine, x, x_groups * 8, slots_at, warp, lane, parts, x_scale);

  const place my_x = {x.codes, x.starts + lane % 4 * 16};
  place x_of_tile = my_x.of(tile_groups * first);
  float sum[4 * kEights] = {};
  int tile = first;
  uint32_t slot = slots_at + int2_cut_slot(&cut, &mine, group, mine.first_block) * slot_bytes<kEights>;
  const uint32_t codes = ring + quarter * INT2A8_QUARTER_BYTES + lane * 16;
  int stage = 0;
  uint32_t parity = 0;
#pragma unroll 1
  for (int left = mine.end - mine.begin; left > 0; left--) {
    ptx::barrier_wait(full + stage * 8, parity);
    const uint32_t here = codes + stage * INT2A8_TILE_BYTES;
    const place second = x_of_tile.of(1);
    int sum_of[2][4 * kEights];
    load_starts<kEights>(sum_of[0], x_of_tile.starts);
    multiply<kEights>(sum_of[0], ptx::load_shared_int4(here), ptx::swizzled_descriptor(x_of_tile.codes));
    load_starts<kEights>(sum_of[1], second.starts);
    multiply<kEights>(sum_of[1], ptx::load_shared_int4(here + INT2A8_UNIT_BYTES),
                      ptx::swizzled_descriptor(second.codes));
    // The lane is read again: the widest products leave no register for it.
    const uint32_t again = ptx::thread() % 32, scales_at = here - again * 16 + INT2A8_QUARTER_SCALES + again / 4 * 4;
    const uint32_t scales[2] = {ptx::load_shared(scales_at), ptx::load_shared(scales_at + INT2A8_UNIT_SCALES)};
    __syncwarp();
    if (lane == 0)
      ptx::barrier_arrive(empty + stage * 8);
    if (++stage == stages)
      stage = 0, parity ^= 1;
    ptx::wgmma_wait<1>();
    add_group(sum, sum_of[0], scales[0]);
    ptx::wgmma_wait<0>();
    add_group(sum, sum_of[1], scales[1]);
    x_of_tile = second.of(1);
    if (++tile == tiles || left == 1) {
      const int thread = static_cast<int>(ptx::thread());
      store_sums<kEights>(sum, reinterpret_cast<float *>(raw + (slot - x_at)), thread / 32 % 4 * INT2A8_UNIT_ROWS,
                          thread % 32);
      slot += slot_bytes<kEights>;
      tile = 0;
      x_of_tile = my_x;
    }
  }
  int2_await_sums<consumer_barrier, threads>(cut);
  int2_write_y<threads, pitch, false>(cut, w.product, parts, x_scale);
  int2_await_readers(cut);
}

} // namespace int2a8
