// Kernel of int2_many_config.h.
//
// One warp has bulk copies run ahead into a ring of units: the tiles of W of each warpgroup as they lie, and x in
// swizzled rows of 128 bytes. A warpgroup makes of its codes the numbers c - 1, exact in 16 bits, in the order in which
// the matrix instruction takes W from registers; sums of a group are scaled when they leave it.
#pragma once

#include "int2_codes.cuh"
#include "int2_many_share.cuh"
#include "int2_many_sums.cuh"
#include "wgmma.cuh"

namespace int2_many {

// ---- copies

// What the copies of a unit need, along a block's work.
template <int kGroups> struct supply {
  run_of_units run;
  uint32_t done = 0;
  uint32_t k, last; // of the tile's K
  int column, row;  // of x: bytes, rows
  const uint8_t *w[kGroups];

  __device__ explicit supply(const work &w) : run(w, blockIdx.x, 0) {
    if (!ended())
      begin(w);
  }
  __device__ bool ended() const {
    return run.unit == run.end;
  }
  __device__ void begin(const work &work) {
    const segment s(work, run);
    const place p(work, s.tile);
    k = s.first, last = s.last;
    column = k * GEMM_GROUP * 2;
#pragma unroll
    for (int group = 0; group < kGroups; group++) {
      // Rows behind the last are those of the last block once more.
      const int64_t block = min(p.w * kGroups + group, work.plan.row_blocks - 1u);
      w[group] = static_cast<const uint8_t *>(work.product.tiles) + (block * work.plan.tiles_k + k) * INT2_TILE_BYTES;
    }
    row = p.x;
  }
  __device__ void advance(const work &work) {
    run.unit++, done++;
    if (++k == last) {
      if (ended())
        run = run_of_units(work, blockIdx.x, done);
      if (!ended())
        begin(work);
      return;
    }
    column += GEMM_GROUP * 2;
#pragma unroll
    for (int group = 0; group < kGroups; group++)
      w[group] += INT2_TILE_BYTES;
  }
};

template <int kEights>
__device__ inline void copy_w(const supply<shape<kEights>::groups> &from, shared<kEights> &s, int stage,
                              uint64_t policy) {
  const uint32_t full = ptx::shared_address(&s.full[stage]), to = ptx::shared_address(s.w[stage]);
  ptx::barrier_expect(full, s.x_bytes + s.w_bytes);
#pragma unroll
  for (int group = 0; group < s.groups; group++)
    ptx::copy_bulk(to + group * INT2_TILE_BYTES, from.w[group], INT2_TILE_BYTES, full, policy);
}

template <int kEights>
__device__ inline void copy_x(const work &w, const supply<shape<kEights>::groups> &from, shared<kEights> &s,
                              int stage) {
  const uint32_t full = ptx::shared_address(&s.full[stage]), to = ptx::shared_address(s.x[stage]);
  ptx::copy_tensor(to, &w.x, from.column, from.row * s.columns, full);
  ptx::copy_tensor(to + s.half_bytes, &w.x, from.column + 128, from.row * s.columns, full);
}

// W is asked for before the kernel ahead has ended, x is not.
template <int kEights> __device__ inline void produce(const work &w, shared<kEights> &s) {
  const uint64_t policy = w.plan.x_tiles > 1 ? ptx::policy_evict_normal() : ptx::policy_evict_first();
  supply<shape<kEights>::groups> from(w), early = from;
#pragma unroll 1
  for (int i = 0; i < s.stages && !early.ended(); i++) {
    copy_w(early, s, i, policy);
    early.advance(w);
  }
  ptx::prefetch_tensor_map(&w.x);
  ptx::wait_for_previous_grid();
  cursor<shape<kEights>::stages> at(0);
#pragma unroll 1
  for (; !from.ended(); at.advance()) {
    if (from.done >= s.stages) {
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
__device__ inline void multiply(shared<kEights> &s, uint32_t &done, uint32_t end, int group,
                                float (&sum)[4 * kEights]) {
  cursor<shape<kEights>::stages> at(done);
  const int lane = threadIdx.x % 32, quarter = threadIdx.x / 32 % 4;
  const uint32_t codes = ptx::shared_address(s.w[0]) + group * INT2_TILE_BYTES + quarter * INT2_UNIT_BYTES + lane * 16;
  const uint32_t scales = ptx::shared_address(s.w[0]) + group * INT2_TILE_BYTES + INT2_SCALES_OFFSET +
                          quarter * INT2_UNIT_ROWS * 2 + lane / 4 * 4;
#pragma unroll
  for (int i = 0; i < 4 * kEights; i++)
    sum[i] = 0.0f;
#pragma unroll 1
  for (; done < end; done++, at.advance()) {
    ptx::barrier_wait(ptx::shared_address(&s.full[at.stage]), at.phase);
    uint2 words = ptx::load_shared_uint2(codes + at.stage * s.w_bytes);
    const uint64_t x = ptx::swizzled_descriptor(ptx::shared_address(s.x[at.stage]));
    operand first, second;
    float part[4 * kEights];
    unpack<X>(first, words.x, words.y);
    multiply_half<X, kEights>(part, first, x, false);
    words = ptx::load_shared_uint2(codes + at.stage * s.w_bytes + 8);
    unpack<X>(second, words.x, words.y);
    multiply_half<X, kEights>(part, second, x + s.half_bytes / 16, true);
    ptx::wgmma_wait<0>();
    const uint32_t rows = ptx::load_shared(scales + at.stage * s.w_bytes);
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

// ---- the same of wide tiles

// Of a step of 16 of K: what one matrix instruction takes.
template <typename X> __device__ inline void unpack(uint32_t (&out)[4], uint32_t upper, uint32_t lower, int step) {
  const auto above = int2_codes<X>::view(upper), below = int2_codes<X>::view(lower);
  out[0] = int2_codes<X>::value(above, step), out[1] = int2_codes<X>::value(below, step);
  out[2] = int2_codes<X>::value(above, step + 4), out[3] = int2_codes<X>::value(below, step + 4);
}

template <typename X, int kEights>
__device__ inline void multiply_step(float (&part)[4 * kEights], uint32_t (&codes)[4], uint64_t x, bool add) {
#pragma unroll
  for (int i = 0; i < 4; i++)
    ptx::keep(codes[i]);
#pragma unroll
  for (int i = 0; i < 4 * kEights; i++)
    ptx::keep(part[i]);
  ptx::wgmma_fence();
  int2_codes<X>::multiply(part, codes, x, add);
  ptx::wgmma_commit();
}

// The sums of a segment once more: of more columns, for which there are registers because codes are unpacked step by
// step, each while the product of the one before is under way; another warpgroup's is behind that.
template <typename X, int kEights>
__device__ inline void multiply_wide(shared<kEights> &s, uint32_t &done, uint32_t end, int group,
                                     float (&sum)[4 * kEights]) {
  using place = cursor<shape<kEights>::stages>;
  static_assert(INT2_UNIT_BYTES == 32 * 16 && INT2_UNIT_ROWS * 2 == 32, "codes and scales of a thread");
  const uint32_t words = ptx::shared_address(s.w[0]) + group * INT2_TILE_BYTES + threadIdx.x % 128 * 16;
#pragma unroll
  for (int i = 0; i < 4 * kEights; i++)
    sum[i] = 0.0f;
  uint32_t codes[2][4];
  uint2 half;
  const auto begin = [&] {
    const place at(done);
    ptx::barrier_wait(ptx::shared_address(&s.full[at.stage]), at.phase);
    half = ptx::load_shared_uint2(words + at.stage * s.w_bytes);
    unpack<X>(codes[0], half.x, half.y, 0);
  };
  begin();
#pragma unroll 1
  for (;;) {
    constexpr int steps = GEMM_GROUP / 16;
    const uint32_t stage = place(done).stage;
    const uint64_t x = ptx::swizzled_descriptor(ptx::shared_address(s.x[stage]));
    float part[4 * kEights];
#pragma unroll
    for (int step = 0; step < steps; step++) {
      multiply_step<X, kEights>(part, codes[step % 2], x + step / 4 * (s.half_bytes / 16) + 2 * (step % 4), step > 0);
      if (step + 1 == steps)
        break;
      if (step == 3)
        half = ptx::load_shared_uint2(words + stage * s.w_bytes + 8);
      ptx::wgmma_wait<1>();
      unpack<X>(codes[(step + 1) % 2], half.x, half.y, (step + 1) % 4);
    }
    const uint32_t thread = ptx::thread() % 128, scales = words - thread * 16 + INT2_SCALES_OFFSET + thread / 4 * 4;
    const uint32_t rows = ptx::load_shared(scales + stage * s.w_bytes);
    ptx::wgmma_wait<1>();
    if (++done < end)
      begin();
    ptx::wgmma_wait<0>();
    const float2 scale = __half22float2(reinterpret_cast<const __half2 &>(rows));
#pragma unroll
    for (int i = 0; i < 4 * kEights; i++) {
      ptx::keep(part[i]);
      sum[i] = fmaf(part[i], i % 4 < 2 ? scale.x : scale.y, sum[i]);
    }
    if (thread % 32 == 0)
      ptx::barrier_arrive(ptx::shared_address(&s.empty[stage]));
    if (done == end)
      break;
  }
}

// ---- the whole

template <typename X, int kEights> __device__ inline void consume(const work &w, shared<kEights> &s) {
  constexpr int half = kEights / 2, quarter = kEights > 3 ? kEights / 4 : 1;
  const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  uint32_t done = 0;
#pragma unroll 1
  for (;;) {
    // The block is asked for again each time: products leave no register for what follows from it.
    const run_of_units run(w, ptx::block(), done);
    if (run.unit == run.end)
      break;
    const segment ahead(w, run);
    float sum[4 * kEights];
    if constexpr (kEights == 16)
      multiply_wide<X, kEights>(s, done, done + ahead.last - ahead.first, group, sum);
    else
      multiply<X, kEights>(s, done, done + ahead.last - ahead.first, group, sum);
    const int block = static_cast<int>(ptx::block());
    const segment part(w, block, done);
    if (w.split_k > 1 || part.first > 0)
      leave_sums<kEights>(w, group, sum, w.split_k > 1 ? span_of(kEights, w.split_k, block % w.split_k) : span{});
    if (w.split_k > 3) {
      share_tile<kEights, quarter>(w, s, place(w, part.tile), group, sum);
    } else if (w.split_k > 1) {
      share_tile<kEights, half>(w, s, place(w, part.tile), group, sum);
    } else if (part.first == 0) {
      int last = block;
      for (uint32_t have = part.last; have < static_cast<uint32_t>(w.plan.tiles_k);
           have = run_of_units(w, last, 0).end - part.tile * w.plan.tiles_k)
        last++;
      add_sums<kEights, kEights>(w, block + 1, last + 1, group, sum, span{0, kEights});
      write_y<kEights, kEights>(w, s, place(w, part.tile), group, sum, span{0, kEights});
    }
  }
}

template <typename X, int kEights>
__global__ void __launch_bounds__(shape<kEights>::threads, 1) run(const __grid_constant__ work w) {
  extern __shared__ uint8_t raw[];
  const uint32_t begin = ptx::shared_address(raw), skipped = ((begin + 1023) & ~1023u) - begin;
  auto &s = *reinterpret_cast<shared<kEights> *>(raw + skipped);
  ptx::let_next_grid_start();
  if (threadIdx.x == 0) {
    for (int i = 0; i < s.stages; i++) {
      ptx::barrier_init(ptx::shared_address(&s.full[i]), 1);
      ptx::barrier_init(ptx::shared_address(&s.empty[i]), s.consumers / 32);
    }
    ptx::fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x >= s.consumers) {
    ptx::registers_decrease<shape<kEights>::producer_registers>();
    if (threadIdx.x == s.consumers)
      produce(w, s);
  } else {
    ptx::registers_increase<shape<kEights>::consumer_registers>();
    consume<X>(w, s);
  }
}

} // namespace int2_many
