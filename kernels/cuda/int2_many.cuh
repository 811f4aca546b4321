// Kernel of int2_many_config.h.
//
// Two warps have bulk copies run ahead into a ring of units: the tiles of W of each warpgroup as they lie, and x in
// swizzled rows of 128 bytes. A warpgroup makes of its codes the numbers c - 1, exact in 16 bits, in the order in which
// the matrix instruction takes W from registers (in narrow tiles others, int2_many_starts.cuh); sums of a group are
// scaled when they leave it. In wide tiles of f16 the numbers are, before.
#pragma once

#include "int2_codes.cuh"
#include "int2_many_int8.cuh"
#include "int2_many_share.cuh"
#include "int2_many_starts.cuh"
#include "int2_many_sums.cuh"
#include "wgmma.cuh"

namespace int2_many {

// ---- copies

constexpr int x_row_bytes = GEMM_GROUP * 2; // of a row of x in a unit

// What the copies of a unit need, along a block's work.
template <typename Shape> struct supply {
  run_of_units run;
  uint32_t done = 0;
  uint32_t k, last; // of the tile's K
  int column, row;  // of x: bytes, rows
  const uint8_t *w[Shape::groups];

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
    column = k * x_row_bytes;
#pragma unroll
    for (int group = 0; group < Shape::groups; group++) {
      // Rows behind the last are those of the last block once more.
      const int64_t block = min(p.w * Shape::groups + group, work.plan.row_blocks - 1u);
      w[group] = static_cast<const uint8_t *>(work.product.tiles) + (block * work.plan.tiles_k + k) * Shape::tile_bytes;
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
    column += x_row_bytes;
#pragma unroll
    for (int group = 0; group < Shape::groups; group++)
      w[group] += Shape::tile_bytes;
  }
};

// Two warps copy: one asks for W, before the kernel ahead has ended, one for x. A stage waits for an arrival of each,
// or in place of the latter for each lane of the warp that computes what sums start from.
constexpr int copying = 2;

template <typename Shape> __device__ inline void produce_w(const work &w, shared<Shape> &s) {
  const uint64_t policy = w.plan.x_tiles > 1 ? ptx::policy_evict_normal() : ptx::policy_evict_first();
  supply<Shape> from(w);
  cursor<Shape::stages> at(0);
#pragma unroll 1
  for (; !from.ended(); at.advance()) {
    const uint32_t full = ptx::shared_address(&s.full[at.stage]), to = ptx::shared_address(s.w[at.stage]);
    if (from.done >= s.stages)
      ptx::barrier_wait(ptx::shared_address(&s.empty[at.stage]), at.phase ^ 1);
    ptx::barrier_expect(full, s.w_bytes);
#pragma unroll
    for (int group = 0; group < s.groups; group++)
      ptx::copy_bulk(to + group * s.tile_bytes, from.w[group], s.tile_bytes, full, policy);
    from.advance(w);
  }
}

template <typename Shape> __device__ inline void produce_x(const work &w, shared<Shape> &s) {
  ptx::prefetch_tensor_map(&w.x);
  supply<Shape> from(w);
  cursor<Shape::stages> at(0);
  ptx::wait_for_previous_grid();
#pragma unroll 1
  for (; !from.ended(); at.advance()) {
    uint32_t full = ptx::shared_address(&s.full[at.stage]);
    if constexpr (Shape::starts)
      full = ptx::shared_address(&s.start.x_full[at.stage]);
    const uint32_t to = ptx::shared_address(s.x[at.stage]);
    if (from.done >= s.stages)
      ptx::barrier_wait(ptx::shared_address(&s.empty[at.stage]), at.phase ^ 1);
    ptx::barrier_expect(full, s.x_bytes);
    ptx::copy_tensor(to, &w.x, from.column, from.row * s.columns, full);
    ptx::copy_tensor(to + s.half_bytes, &w.x, from.column + 128, from.row * s.columns, full);
    from.advance(w);
  }
}

// ---- products

// Of half a group's codes of each of a lane's two rows: what four matrix instructions take.
struct operand {
  uint32_t a[4][4];
};

// kStarts: numbers that count from a power of two.
template <typename X, bool kStarts>
__device__ inline void unpack(operand &out, uint32_t upper, uint32_t lower,
                              const uint32_t (&exponents)[int2_codes<X>::places]) {
  const auto above = int2_codes<X>::view(upper), below = int2_codes<X>::view(lower);
#pragma unroll
  for (int s = 0; s < 4; s++) {
    const uint32_t first = exponents[int2_codes<X>::place(s)], second = exponents[int2_codes<X>::place(s + 4)];
    const auto number = [](const auto &view, int f, uint32_t exponent) {
      return kStarts ? int2_codes<X>::number(view, f, exponent) : int2_codes<X>::value(view, f, exponent);
    };
    out.a[s][0] = number(above, s, first), out.a[s][1] = number(below, s, first);
    out.a[s][2] = number(above, s + 4, second), out.a[s][3] = number(below, s + 4, second);
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

// Where in a tile of W the codes of a warpgroup's thread begin, and the scales of its two rows by that.
__device__ inline uint32_t codes_of(uint32_t tile, uint32_t thread) {
  static_assert(INT2_UNIT_BYTES == 32 * 16 && INT2_HALF_ROWS == 2 * INT2_UNIT_ROWS, "codes of a thread");
  return tile + thread / 64 * INT2_HALF_BYTES + thread % 64 * 16;
}
__device__ inline uint32_t scales_by(uint32_t codes, uint32_t thread) {
  return codes - thread % 64 * 16 + INT2_HALF_SCALES + thread % 64 / 4 * 4;
}

// What a thread needs for each unit: where its codes and its rows' scales are in a stage, where what its sums start
// from, and what its codes count from. Kept, not computed again in the loop, where every instruction counts.
template <typename Shape> struct lane_constants {
  using number = int2_codes<typename Shape::number>;
  uint32_t codes, scales; // scales: by the codes
  uint32_t starts;
  uint32_t exponents[number::places];

  __device__ explicit lane_constants(const shared<Shape> &s) {
    const uint32_t thread = threadIdx.x % 128, w = ptx::shared_address(s.w[0]);
    const uint32_t first = codes_of(w + threadIdx.x / 128 * INT2_TILE_BYTES, thread);
    if constexpr (Shape::starts)
      starts = ptx::held(ptx::shared_address(s.start.quads[0]) + thread % 4 * start_quad);
    codes = ptx::held(first), scales = ptx::held(scales_by(first, thread) - first);
#pragma unroll
    for (int i = 0; i < number::places; i++)
      exponents[i] = ptx::held(number::exponent(i));
  }
};

// The sums of a segment, of one warpgroup.
template <typename Shape>
__device__ inline void multiply(shared<Shape> &s, uint32_t &done, uint32_t end, const lane_constants<Shape> &lane,
                                float (&sum)[4 * Shape::eights]) {
  using X = typename Shape::number;
  constexpr int kEights = Shape::eights;
  cursor<Shape::stages> at(done);
  const uint64_t x_first = ptx::swizzled_descriptor(ptx::shared_address(s.x[0]));
#pragma unroll
  for (int i = 0; i < 4 * kEights; i++)
    sum[i] = 0.0f;
#pragma unroll 1
  for (; done < end; done++, at.advance()) {
    ptx::barrier_wait(ptx::shared_address(&s.full[at.stage]), at.phase);
    const uint32_t here = lane.codes + at.stage * s.w_bytes;
    const uint4 words = ptx::load_shared_uint4(here);
    const uint32_t rows = ptx::load_shared(here + lane.scales);
    const uint64_t x = x_first + at.stage * (s.x_bytes / 16);
    operand first, second;
    float part[4 * kEights];
    if constexpr (Shape::starts)
      load_starts<kEights>(part, lane.starts + at.stage * sizeof s.start.quads[0]);
    unpack<X, Shape::starts>(first, words.x, words.y, lane.exponents);
    multiply_half<X, kEights>(part, first, x, Shape::starts);
    unpack<X, Shape::starts>(second, words.z, words.w, lane.exponents);
    multiply_half<X, kEights>(part, second, x + s.half_bytes / 16, true);
    ptx::wgmma_wait<0>();
    const float2 scale = __half22float2(reinterpret_cast<const __half2 &>(rows));
#pragma unroll
    for (int i = 0; i < 4 * kEights; i++) {
      ptx::keep(part[i]);
      sum[i] = fmaf(part[i], i % 4 < 2 ? scale.x : scale.y, sum[i]);
    }
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
template <typename Shape>
__device__ inline void multiply_wide(shared<Shape> &s, uint32_t &done, uint32_t end, int group,
                                     float (&sum)[4 * Shape::eights]) {
  using X = typename Shape::number;
  constexpr int kEights = Shape::eights;
  const uint32_t words = codes_of(ptx::shared_address(s.w[0]) + group * INT2_TILE_BYTES, threadIdx.x % 128);
#pragma unroll
  for (int i = 0; i < 4 * kEights; i++)
    sum[i] = 0.0f;
  cursor<Shape::stages> at(done);
  uint32_t codes[2][4];
  uint2 half;
  const auto begin = [&] {
    ptx::barrier_wait(ptx::shared_address(&s.full[at.stage]), at.phase);
    half = ptx::load_shared_uint2(words + at.stage * s.w_bytes);
    unpack<X>(codes[0], half.x, half.y, 0);
  };
  begin();
#pragma unroll 1
  for (; done < end; done++) {
    constexpr int steps = GEMM_GROUP / 16;
    const uint32_t stage = at.stage;
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
    const uint32_t thread = ptx::thread() % 128, scales = scales_by(words, thread);
    const uint32_t rows = ptx::load_shared(scales + stage * s.w_bytes);
    ptx::wgmma_wait<1>();
    if (done + 1 < end)
      at.advance();
    begin(); // of the last unit once more: a jump would have addresses computed in each lane
    ptx::wgmma_wait<0>();
    const float2 scale = __half22float2(reinterpret_cast<const __half2 &>(rows));
#pragma unroll
    for (int i = 0; i < 4 * kEights; i++) {
      ptx::keep(part[i]);
      sum[i] = fmaf(part[i], i % 4 < 2 ? scale.x : scale.y, sum[i]);
    }
    ptx::barrier_arrive(ptx::shared_address(&s.empty[stage]));
  }
}

// ---- the same of f16 in wide tiles

// Whether a tile of W has a scale of 2^15 or more, twice which is no f16. All lanes of a warp.
__device__ inline bool has_large_scales(uint32_t tile) {
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t two = ptx::load_shared(tile + lane / 16 * INT2_HALF_BYTES + INT2_HALF_SCALES + lane % 16 * 4);
  return __any_sync(0xffffffffu, (two & 0x7800) == 0x7800 || (two & 0x78000000) == 0x78000000);
}

// Of two scales, what the products are added up with at first and then once more where a tile has large ones: of these
// twice the half, of others themselves and zero.
__device__ inline uint32_t part_of_scales(uint32_t two, bool again) {
  const uint32_t halves = int2_codes<__half>::times(two, 0x38003800);
  const uint32_t large =
      ((two & 0x7800) == 0x7800 ? 0xffffu : 0) | ((two & 0x78000000) == 0x78000000 ? 0xffff0000u : 0);
  return (halves & large) | (again ? 0 : two & ~large);
}

// The sums of a segment once more: scales go to the numbers c - 1 before the products, which is exact in f16, so that
// sums stay where the matrix instruction adds to them.
template <typename Shape>
__device__ inline void multiply_scaled(shared<Shape> &s, uint32_t &done, uint32_t end, int group,
                                       float (&sum)[4 * Shape::eights]) {
  using place = cursor<Shape::stages>;
  using f16 = int2_codes<__half>;
  constexpr int steps = GEMM_GROUP / 16;
  const uint32_t tile = ptx::shared_address(s.w[0]) + group * INT2_TILE_BYTES, thread = threadIdx.x % 128;
  const uint32_t row_codes = codes_of(0, thread), row_scales = scales_by(row_codes, thread);
#pragma unroll
  for (int i = 0; i < 4 * Shape::eights; i++)
    sum[i] = 0.0f;
  uint32_t codes[2][4];
  place at(done);
  int before = -1; // the stage whose last products may still be under way
#pragma unroll 1
  for (; done < end; done++, at.advance()) {
    const uint32_t w = tile + at.stage * s.w_bytes;
    ptx::barrier_wait(ptx::shared_address(&s.full[at.stage]), at.phase);
    const uint4 words = ptx::load_shared_uint4(w + row_codes);
    const bool large = has_large_scales(w);
    uint32_t two = ptx::load_shared(w + row_scales);
    const uint64_t x = ptx::swizzled_descriptor(ptx::shared_address(s.x[at.stage]));
    if (large)
      two = part_of_scales(two, false);
#pragma unroll 1
    for (bool again = large;;) {
      const uint32_t upper = __byte_perm(two, 0, 0x1010), lower = __byte_perm(two, 0, 0x3232);
#pragma unroll
      for (int step = 0; step < steps; step++) {
        uint32_t(&out)[4] = codes[step % 2];
        ptx::wgmma_wait<1>();
#pragma unroll
        for (int i = 0; i < 4; i++)
          ptx::keep(out[i]);
        unpack<__half>(out, step < 4 ? words.x : words.z, step < 4 ? words.y : words.w, step % 4);
        out[0] = f16::times(out[0], upper), out[1] = f16::times(out[1], lower);
        out[2] = f16::times(out[2], upper), out[3] = f16::times(out[3], lower);
        multiply_step<__half, Shape::eights>(sum, out, x + step / 4 * (s.half_bytes / 16) + 2 * (step % 4), true);
        if (step == 1 && before >= 0)
          ptx::barrier_arrive(ptx::shared_address(&s.empty[before]));
      }
      if (!again)
        break;
      again = false, before = -1;
      two = part_of_scales(ptx::load_shared(w + row_scales), true);
    }
    before = at.stage;
  }
  ptx::wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < 4 * Shape::eights; i++)
    ptx::keep(sum[i]);
  ptx::barrier_arrive(ptx::shared_address(&s.empty[before]));
}

// ---- the whole

template <typename Shape> __device__ inline void consume(const work &w, shared<Shape> &s) {
  constexpr int eights = Shape::eights, half = eights / 2, quarter = eights > 3 ? eights / 4 : 1;
  struct none {
    __device__ explicit none(const shared<Shape> &) {}
  };
  using constants = std::conditional_t<Shape::int8 || (eights > 8), none, lane_constants<Shape>>;
  [[maybe_unused]] const constants lane(s);
  uint32_t done = 0;
#pragma unroll 1
  for (;;) {
    // Block and warpgroup are asked for again each time: products leave no register for what follows from them.
    const int multiplies = __shfl_sync(0xffffffffu, ptx::thread() / 128, 0);
    const run_of_units run(w, ptx::block(), done);
    if (run.unit == run.end)
      break;
    const segment ahead(w, run);
    float sum[4 * eights];
    if constexpr (Shape::int8)
      multiply_int8<Shape>(s, done, done + ahead.last - ahead.first, multiplies, sum);
    else if constexpr (INT2_MANY_SCALES_W(Shape::columns, Shape::f16))
      multiply_scaled<Shape>(s, done, done + ahead.last - ahead.first, multiplies, sum);
    else if constexpr (eights == 16)
      multiply_wide<Shape>(s, done, done + ahead.last - ahead.first, multiplies, sum);
    else
      multiply<Shape>(s, done, done + ahead.last - ahead.first, lane, sum);
    const int block = static_cast<int>(ptx::block()), group = static_cast<int>(ptx::thread()) / 128;
    const segment part(w, block, done);
    if (w.split_k > 1 || part.first > 0)
      leave_sums<Shape>(w, group, sum, w.split_k > 1 ? span_of(eights, w.split_k, block % w.split_k) : span{});
    if (w.split_k > 3) {
      share_tile<Shape, quarter>(w, s, place(w, part.tile), group, sum);
    } else if (w.split_k > 1) {
      share_tile<Shape, half>(w, s, place(w, part.tile), group, sum);
    } else if (part.first == 0) {
      int last = block;
      for (uint32_t have = part.last; have < static_cast<uint32_t>(w.plan.tiles_k);
           have = run_of_units(w, last, 0).end - part.tile * w.plan.tiles_k)
        last++;
      add_sums<Shape, eights>(w, block + 1, last + 1, group, sum, span{0, eights});
      write_y<Shape, eights>(w, s, place(w, part.tile), group, sum, span{0, eights});
    }
  }
}

template <typename Shape> __global__ void __launch_bounds__(Shape::threads, 1) run(const __grid_constant__ work w) {
  extern __shared__ uint8_t raw[];
  const uint32_t begin = ptx::shared_address(raw), skipped = ((begin + 1023) & ~1023u) - begin;
  auto &s = *reinterpret_cast<shared<Shape> *>(raw + skipped);
  ptx::let_next_grid_start();
  if (threadIdx.x == 0) {
    for (int i = 0; i < s.stages; i++) {
      ptx::barrier_init(ptx::shared_address(&s.full[i]), Shape::starts ? 1 + 32 : copying);
      ptx::barrier_init(ptx::shared_address(&s.empty[i]), s.arrivals);
      if constexpr (Shape::starts)
        ptx::barrier_init(ptx::shared_address(&s.start.x_full[i]), 1);
    }
    ptx::fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x >= s.consumers) {
    ptx::registers_decrease<Shape::producer_registers>();
    if (threadIdx.x == s.consumers)
      produce_w(w, s);
    else if (threadIdx.x == s.consumers + 32)
      produce_x(w, s);
    if constexpr (Shape::starts)
      if (threadIdx.x >= s.consumers + 32 * copying)
        produce_starts(w, s, threadIdx.x / 32 - s.consumers / 32 - copying);
  } else {
    ptx::registers_increase<Shape::consumer_registers>();
    consume(w, s);
  }
}

} // namespace int2_many
