// Kernel of int2_many_config.h.
//
// One warp has bulk copies run ahead into a ring of units: the tiles of W of each warpgroup as they lie, and x in
// swizzled rows of 128 bytes. A warpgroup makes of its codes the numbers c - 1, exact in 16 bits, in the order in which
// the matrix instruction takes W from registers; sums of a group are scaled when they leave it.
#pragma once

#include "int2_codes.cuh"
#include "int2_layout.h"
#include "int2_many.h"
#include "number.cuh"
#include "ptx.cuh"
#include "wgmma.cuh"

#include <cuda.h>

namespace int2_many {

constexpr int groups = INT2_MANY_GROUPS, consumers = 128 * groups, threads = consumers + 128;
// What a launch begins with, 96 a thread, as it is shared out.
constexpr int consumer_registers = 112, producer_registers = 32;
static_assert(consumers * consumer_registers + 128 * producer_registers == threads * 96);
constexpr int pitch = INT2_BLOCK_ROWS + 4;
constexpr uint32_t w_bytes = groups * INT2_TILE_BYTES;

struct work {
  int2_many_product product;
  int2_many_plan plan;
  int split_k, group;
  CUtensorMap x;
};

template <int kEights> struct shared {
  static constexpr int columns = 8 * kEights, stages = kEights == 8 ? 8 : kEights == 4 ? 12 : 16;
  static constexpr uint32_t half_bytes = columns * 128, x_bytes = 2 * half_bytes;
  uint8_t x[stages][x_bytes]; // the swizzle counts from a multiple of 1024
  uint8_t w[stages][w_bytes];
  float out[groups][2][8][pitch];
  uint64_t full[stages], empty[stages];
};

// ---- shares of the work

// Units of a block.
struct run_of_units {
  int unit, end;

  __device__ run_of_units(const work &w, int block) {
    const int tiles_k = w.plan.tiles_k;
    if (w.split_k > 0) {
      const int part = block % w.split_k, tile = block / w.split_k * tiles_k;
      unit = tile + tiles_k * part / w.split_k, end = tile + tiles_k * (part + 1) / w.split_k;
    } else {
      const int each = w.plan.units / w.plan.blocks, more = w.plan.units % w.plan.blocks;
      unit = each * block + min(block, more), end = unit + each + (block < more);
    }
  }
};

// The units of a run that belong to one tile: [first, last) of its K.
struct segment {
  int tile, first, last;

  __device__ segment(const work &w, const run_of_units &run) {
    tile = run.unit / w.plan.tiles_k, first = run.unit % w.plan.tiles_k;
    last = min(w.plan.tiles_k, first + run.end - run.unit);
  }
};

// Where a tile of y is: which 256 rows of W, which rows of x.
struct place {
  int w, x;

  __device__ place(const work &work, int tile) {
    const int in_group = work.group * work.plan.w_tiles, first = tile / in_group * work.group;
    const int wide = min(work.group, work.plan.x_tiles - first), within = tile % in_group;
    w = within / wide, x = first + within % wide;
  }
};

// Where in the ring a warp is.
template <int kStages> struct cursor {
  int stage = 0;
  uint32_t phase = 0;

  __device__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

// ---- copies

// What the copies of a unit need, along a block's run.
struct supply {
  run_of_units run;
  int k, last;     // of the tile's K
  int column, row; // of x: bytes, rows
  const uint8_t *w[groups];

  __device__ explicit supply(const work &w) : run(w, blockIdx.x) {
    if (run.unit < run.end)
      begin(w);
  }
  __device__ void begin(const work &work) {
    const segment s(work, run);
    const place p(work, s.tile);
    k = s.first, last = s.last;
    column = k * GEMM_GROUP * 2;
#pragma unroll
    for (int group = 0; group < groups; group++) {
      // Rows behind the last are those of the last block once more.
      const int64_t block = min(p.w * groups + group, work.plan.row_blocks - 1);
      w[group] = static_cast<const uint8_t *>(work.product.tiles) + (block * work.plan.tiles_k + k) * INT2_TILE_BYTES;
    }
    row = p.x;
  }
  __device__ bool advance(const work &work) {
    run.unit++;
    if (run.unit == run.end)
      return false;
    if (++k == last) {
      begin(work);
      return true;
    }
    column += GEMM_GROUP * 2;
#pragma unroll
    for (int group = 0; group < groups; group++)
      w[group] += INT2_TILE_BYTES;
    return true;
  }
};

template <int kEights>
__device__ inline void copy_w(const supply &from, shared<kEights> &s, int stage, uint64_t policy) {
  const uint32_t full = ptx::shared_address(&s.full[stage]), to = ptx::shared_address(s.w[stage]);
  ptx::barrier_expect(full, s.x_bytes + w_bytes);
#pragma unroll
  for (int group = 0; group < groups; group++)
    ptx::copy_bulk(to + group * INT2_TILE_BYTES, from.w[group], INT2_TILE_BYTES, full, policy);
}

template <int kEights> __device__ inline void copy_x(const work &w, const supply &from, shared<kEights> &s, int stage) {
  const uint32_t full = ptx::shared_address(&s.full[stage]), to = ptx::shared_address(s.x[stage]);
  ptx::copy_tensor(to, &w.x, from.column, from.row * s.columns, full);
  ptx::copy_tensor(to + s.half_bytes, &w.x, from.column + 128, from.row * s.columns, full);
}

// W is asked for before the kernel ahead has ended, x is not.
template <int kEights> __device__ inline void produce(const work &w, shared<kEights> &s) {
  const uint64_t policy = w.plan.x_tiles > 1 ? ptx::policy_evict_normal() : ptx::policy_evict_first();
  supply early(w), from(w);
  const int units = from.run.end - from.run.unit;
#pragma unroll 1
  for (int i = 0; i < min(s.stages, units); i++) {
    copy_w(early, s, i, policy);
    early.advance(w);
  }
  ptx::prefetch_tensor_map(&w.x);
  ptx::wait_for_previous_grid();
  cursor<shared<kEights>::stages> at;
#pragma unroll 1
  for (int i = 0; i < units; i++, at.advance()) {
    if (i >= s.stages) {
      ptx::barrier_wait(ptx::shared_address(&s.empty[at.stage]), at.phase ^ 1);
      copy_w(from, s, at.stage, policy);
    }
    copy_x(w, from, s, at.stage);
    from.advance(w);
  }
}

// ---- products

// Of half a group's codes of each of a lane's two rows: what four matrix instructions take.
struct operand {
  uint32_t a[4][4];
};

template <typename X> __device__ inline void unpack(operand &out, uint32_t upper, uint32_t lower) {
  const auto above = int2_codes<X>::view(upper), below = int2_codes<X>::view(lower);
#pragma unroll
  for (int s = 0; s < 4; s++) {
    out.a[s][0] = int2_codes<X>::value(above, s), out.a[s][1] = int2_codes<X>::value(below, s);
    out.a[s][2] = int2_codes<X>::value(above, s + 4), out.a[s][3] = int2_codes<X>::value(below, s + 4);
  }
}

// Where the compiler may not touch what instructions under way read.
__device__ inline void keep(operand &operand) {
#pragma unroll
  for (int s = 0; s < 4; s++)
#pragma unroll
    for (int i = 0; i < 4; i++)
      ptx::keep(operand.a[s][i]);
}

// Begins the products of 64 of K by x, of which this is the descriptor.
template <typename X, int kEights>
__device__ inline void multiply_half(float (&part)[4 * kEights], operand &codes, uint64_t x, bool add) {
  keep(codes);
#pragma unroll
  for (int i = 0; i < 4 * kEights; i++)
    ptx::keep(part[i]);
  ptx::wgmma_fence();
#pragma unroll
  for (int s = 0; s < 4; s++)
    int2_codes<X>::multiply(part, codes.a[s], x + 2 * s, add || s > 0);
  ptx::wgmma_commit();
}

// The sums of a segment, of one warpgroup.
template <typename X, int kEights>
__device__ inline void multiply(shared<kEights> &s, cursor<shared<kEights>::stages> &at, int units, int group,
                                float (&sum)[4 * kEights]) {
  const int lane = threadIdx.x % 32, quarter = threadIdx.x / 32 % 4;
  const uint32_t codes = ptx::shared_address(s.w[0]) + group * INT2_TILE_BYTES + quarter * INT2_UNIT_BYTES + lane * 16;
  const uint32_t scales = ptx::shared_address(s.w[0]) + group * INT2_TILE_BYTES + INT2_SCALES_OFFSET +
                          quarter * INT2_UNIT_ROWS * 2 + lane / 4 * 4;
#pragma unroll
  for (int i = 0; i < 4 * kEights; i++)
    sum[i] = 0.0f;
#pragma unroll 1
  for (; units > 0; units--, at.advance()) {
    ptx::barrier_wait(ptx::shared_address(&s.full[at.stage]), at.phase);
    uint2 words = ptx::load_shared_uint2(codes + at.stage * w_bytes);
    const uint64_t x = ptx::swizzled_descriptor(ptx::shared_address(s.x[at.stage]));
    operand first, second;
    float part[4 * kEights];
    unpack<X>(first, words.x, words.y);
    multiply_half<X, kEights>(part, first, x, false);
    words = ptx::load_shared_uint2(codes + at.stage * w_bytes + 8);
    unpack<X>(second, words.x, words.y);
    multiply_half<X, kEights>(part, second, x + s.half_bytes / 16, true);
    ptx::wgmma_wait<0>();
    const uint32_t rows = ptx::load_shared(scales + at.stage * w_bytes);
    const float2 scale = __half22float2(reinterpret_cast<const __half2 &>(rows));
#pragma unroll
    for (int i = 0; i < 4 * kEights; i++) {
      ptx::keep(part[i]);
      sum[i] = fmaf(part[i], i % 4 < 2 ? scale.x : scale.y, sum[i]);
    }
    if (lane == 0)
      ptx::barrier_arrive(ptx::shared_address(&s.empty[at.stage]));
  }
}

// ---- sums of a tile that several blocks have

__device__ inline void group_sync(int group) {
  ptx::named_barrier_sync(1 + group, 128);
}

// A block's sums as its threads hold them: [groups][eights][128] quads. Each word is `nothing` but from when its writer
// has a sum to when its reader has seen it, so no more than the word itself is waited for. No sum has these bits:
// arithmetic makes another NaN.
constexpr uint32_t nothing = INT2_MANY_NOTHING;

template <int kEights> __device__ inline uint4 *sums_of(const work &w, int block, int group) {
  return static_cast<uint4 *>(w.product.sums) + (block * groups + group) * kEights * 128 + threadIdx.x % 128;
}

// Columns [8 * begin, 8 * end) of a tile, that a block adds up.
struct span {
  int begin, end;
};

__device__ inline span span_of(int eights, int parts, int part) {
  const int each = (eights + parts - 1) / parts;
  return {min(each * part, eights), min(each * (part + 1), eights)};
}

template <int kEights>
__device__ inline void leave_sums(const work &w, int group, const float (&sum)[4 * kEights], span own) {
  uint4 *const to = sums_of<kEights>(w, blockIdx.x, group);
#pragma unroll
  for (int t = 0; t < kEights; t++)
    if (t < own.begin || t >= own.end)
      ptx::store_relaxed(to + t * 128, make_uint4(__float_as_uint(sum[4 * t]), __float_as_uint(sum[4 * t + 1]),
                                                  __float_as_uint(sum[4 * t + 2]), __float_as_uint(sum[4 * t + 3])));
}

// Adds what blocks [begin, end) but this one have of columns `own`, of which `sum` begins with the first.
template <int kEights, int kOwn>
__device__ inline void add_sums(const work &w, int begin, int end, int group, float (&sum)[4 * kOwn], span own) {
  constexpr int batch = kOwn < 8 ? 8 / kOwn : 1;
  const uint4 empty = make_uint4(nothing, nothing, nothing, nothing);
#pragma unroll 1
  for (int block = begin; block < end; block += batch) {
    uint4 found[batch][kOwn];
    const auto wanted = [&](int i, int t) {
      return block + i < end && block + i != static_cast<int>(blockIdx.x) && own.begin + t < own.end;
    };
#pragma unroll
    for (int i = 0; i < batch; i++)
#pragma unroll
      for (int t = 0; t < kOwn; t++)
        if (wanted(i, t))
          found[i][t] = ptx::load_relaxed(sums_of<kEights>(w, block + i, group) + (own.begin + t) * 128);
        else
          found[i][t] = make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < batch; i++) {
#pragma unroll
      for (int t = 0; t < kOwn; t++) {
        if (!wanted(i, t))
          continue;
        uint4 *const from = sums_of<kEights>(w, block + i, group) + (own.begin + t) * 128;
        uint4 &quad = found[i][t];
        while (quad.x == nothing || quad.y == nothing || quad.z == nothing || quad.w == nothing)
          quad = ptx::load_relaxed(from);
        ptx::store_relaxed(from, empty);
        sum[4 * t] += __uint_as_float(quad.x), sum[4 * t + 1] += __uint_as_float(quad.y);
        sum[4 * t + 2] += __uint_as_float(quad.z), sum[4 * t + 3] += __uint_as_float(quad.w);
      }
    }
  }
}

// ---- sums to y

// Columns `own` of the warpgroup's 64 rows of W, of which `sum` begins with the first, eight at a time through shared
// memory, so that whole runs of y are written.
template <int kEights, int kOwn>
__device__ inline void write_y(const work &w, shared<kEights> &s, const place &at, int group,
                               const float (&sum)[4 * kOwn], span own) {
  const int2_many_product &p = w.product;
  const int thread = threadIdx.x % 128, lane = thread % 32, column = thread / 16, four = thread % 16 * 4;
  const int64_t n = (static_cast<int64_t>(at.w) * groups + group) * INT2_BLOCK_ROWS + four;
  float bias[4] = {};
  if (p.bias && n < p.n)
#pragma unroll
    for (int j = 0; j < 4; j++)
      bias[j] = number_load_as(p.bias, min(n + j, p.n - 1), p.bias_type);
#pragma unroll
  for (int t = 0; t < kOwn; t++) {
    if (own.begin + t >= own.end)
      break;
    auto &out = s.out[group][t % 2];
    float *const to = &out[lane % 4 * 2][thread / 32 * INT2_UNIT_ROWS + lane / 4];
    to[0] = sum[4 * t];
    to[pitch] = sum[4 * t + 1];
    to[8] = sum[4 * t + 2];
    to[pitch + 8] = sum[4 * t + 3];
    group_sync(group);
    const int64_t m = static_cast<int64_t>(at.x) * s.columns + 8 * (own.begin + t) + column;
    if (m >= p.m || n >= p.n)
      continue;
    const float4 found = *reinterpret_cast<const float4 *>(&out[column][four]);
    const float value[4] = {found.x + bias[0], found.y + bias[1], found.z + bias[2], found.w + bias[3]};
    uint8_t *row = static_cast<uint8_t *>(p.y) + m * p.y_stride;
    if (p.y_type == GEMM_F32)
      number_store4(reinterpret_cast<float *>(row), n, p.n, value);
    else if (p.y_type == GEMM_F16)
      number_store4(reinterpret_cast<__half *>(row), n, p.n, value);
    else
      number_store4(reinterpret_cast<__nv_bfloat16 *>(row), n, p.n, value);
  }
  group_sync(group); // before the next tile's sums
}

// Of a tile that w.split_k blocks have equal parts of, all at the same time: each adds up and writes up to 8 * kOwn of
// its columns.
template <int kEights, int kOwn>
__device__ inline void share_tile(const work &w, shared<kEights> &s, const place &at, int group,
                                  const float (&sum)[4 * kEights]) {
  const int block = static_cast<int>(blockIdx.x), begin = block / w.split_k * w.split_k;
  const span own = span_of(kEights, w.split_k, block - begin);
  float mine[4 * kOwn] = {};
#pragma unroll
  for (int t = 0; t < kEights; t++)
#pragma unroll
    for (int i = 0; i < kOwn; i++)
      if (own.begin + i == t)
#pragma unroll
        for (int j = 0; j < 4; j++)
          mine[4 * i + j] = sum[4 * t + j];
  add_sums<kEights, kOwn>(w, begin, begin + w.split_k, group, mine, own);
  write_y<kEights, kOwn>(w, s, at, group, mine, own);
}

// ---- the whole

template <typename X, int kEights> __device__ inline void consume(const work &w, shared<kEights> &s) {
  constexpr int half = kEights / 2, quarter = kEights > 3 ? kEights / 4 : 1;
  const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0), block = static_cast<int>(blockIdx.x);
  cursor<shared<kEights>::stages> at;
#pragma unroll 1
  for (int unit = run_of_units(w, block).unit;;) {
    // Computed again for each tile: products leave no register for where the run ends.
    int again = block;
    ptx::keep(again);
    run_of_units run(w, again);
    run.unit = unit;
    if (run.unit == run.end)
      break;
    const segment part(w, run);
    float sum[4 * kEights];
    multiply<X, kEights>(s, at, part.last - part.first, group, sum);
    unit += part.last - part.first;
    if (w.split_k > 1 || part.first > 0)
      leave_sums<kEights>(w, group, sum, w.split_k > 1 ? span_of(kEights, w.split_k, block % w.split_k) : span{});
    if (w.split_k > 3) {
      share_tile<kEights, quarter>(w, s, place(w, part.tile), group, sum);
    } else if (w.split_k > 1) {
      share_tile<kEights, half>(w, s, place(w, part.tile), group, sum);
    } else if (part.first == 0) {
      int last = block;
      for (const int end = (part.tile + 1) * w.plan.tiles_k; run_of_units(w, last).end < end;)
        last++;
      add_sums<kEights, kEights>(w, block + 1, last + 1, group, sum, span{0, kEights});
      write_y<kEights, kEights>(w, s, place(w, part.tile), group, sum, span{0, kEights});
    }
  }
}

template <typename X, int kEights> __global__ void __launch_bounds__(threads, 1) run(const __grid_constant__ work w) {
  extern __shared__ uint8_t raw[];
  const uint32_t begin = ptx::shared_address(raw), skipped = ((begin + 1023) & ~1023u) - begin;
  auto &s = *reinterpret_cast<shared<kEights> *>(raw + skipped);
  ptx::let_next_grid_start();
  if (threadIdx.x == 0) {
    for (int i = 0; i < s.stages; i++) {
      ptx::barrier_init(ptx::shared_address(&s.full[i]), 1);
      ptx::barrier_init(ptx::shared_address(&s.empty[i]), consumers / 32);
    }
    ptx::fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x >= consumers) {
    ptx::registers_decrease<producer_registers>();
    if (threadIdx.x == consumers)
      produce(w, s);
  } else {
    ptx::registers_increase<consumer_registers>();
    consume<X>(w, s);
  }
}

} // namespace int2_many
