// The kernel of fp8_many/config.h.
#pragma once

#include "../../../device/wgmma_between.cuh"
#include "codes.cuh"
#include "sums.cuh"

namespace fp8_many {

// ---- copies

// Rows of W that one block alone reads leave the L2 first. Of those that several read nothing is said: blocks that
// fetch the same bytes with any cache policy do not share them on the way from the L2, and copies alone take 110 us
// for 77.
template <typename T>
__device__ inline void copy_w(const work &w, shared<T> &s, const place &at, uint32_t step, uint32_t stage,
                              uint64_t policy) {
  const uint32_t full = ptx::shared_address(&s.full[stage]), to = ptx::shared_address(s.ring) + stage * T::slot_bytes;
  ptx::barrier_expect(full, T::w_bytes);
  if constexpr (T::coded) {
#pragma unroll
    for (int i = 0; i < T::rows / 64; i++) { // behind the last rows those once more
      const int64_t block = min(static_cast<int64_t>(at.w * (T::rows / 64) + i), (w.product.n + 63) / 64 - 1);
      const uint8_t *const from =
          static_cast<const uint8_t *>(w.product.w) + (block * w.plan.steps + step) * INT2A8_TILE_BYTES;
      ptx::copy_bulk(to + i * INT2A8_TILE_BYTES, from, INT2A8_TILE_BYTES, full, policy);
    }
  } else if (w.plan.x_tiles == 1)
    ptx::copy_tensor_once(to, &w.w, step * FP8_MANY_STEP, at.w * T::rows, full, policy);
  else
    ptx::copy_tensor(to, &w.w, step * FP8_MANY_STEP, at.w * T::rows, full);
}

template <typename T>
__device__ inline void copy_x(const work &w, shared<T> &s, const place &at, uint32_t step, uint32_t stage) {
  const uint32_t full = ptx::shared_address(&s.full[stage]);
  const uint32_t to = ptx::shared_address(s.ring) + stage * T::slot_bytes + T::x_at;
  ptx::barrier_expect(full, w.plan.columns * T::step);
#pragma unroll
  for (int i = 0; i < T::step / 128; i++)
    ptx::copy_tensor(to + i * T::columns * 128, &w.x, step * T::step + i * 128, at.x * w.plan.columns, full);
}

// Two warps copy, one W, before the kernel ahead has ended, and one x: asking for a ring's W takes over a thousand
// cycles, which x is not to wait for.
constexpr int copying = 2;

template <typename T, typename Copy> __device__ inline void produce(const work &w, shared<T> &s, Copy copy) {
  cursor at(stages_of<T>(w.plan));
  segment part;
  for (segments list; list.next(w.plan, part);) {
    const place tile(w.plan, part.tile);
    for (uint32_t step = part.first; step < part.last; step++, at.advance()) {
      ptx::barrier_wait(ptx::shared_address(&s.empty[at.stage]), at.phase ^ 1);
      copy(tile, step, at.stage);
    }
  }
}

template <typename T> __device__ inline void produce_w(const work &w, shared<T> &s) {
  const uint64_t policy = w.plan.x_tiles == 1 ? ptx::policy_evict_first() : ptx::policy_evict_normal();
  produce(w, s, [&](const place &tile, uint32_t step, uint32_t stage) { copy_w(w, s, tile, step, stage, policy); });
}

template <typename T> __device__ inline void produce_x(const work &w, shared<T> &s) {
  ptx::wait_for_previous_grid();
  produce(w, s, [&](const place &tile, uint32_t step, uint32_t stage) { copy_x(w, s, tile, step, stage); });
}

// ---- products

constexpr int instructions = FP8_MANY_STEP / 32;

// Where the operands of a step lie: lower halves of descriptors.
struct operands {
  uint32_t w, x;
};

template <int kCount> __device__ inline void multiply(float (&d)[kCount], uint64_t w, uint64_t x, bool add) {
  ptx::wgmma_e4m3(d, w, x, add);
}

template <int kCount> __device__ inline void multiply(int (&d)[kCount], uint64_t w, uint64_t x, bool add) {
  ptx::wgmma_s8(d, w, x, add);
}

template <typename Sum, int kCount> __device__ inline void keep(Sum (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; i++)
    ptx::keep(d[i]);
}

// Begins products of a step: kRun instructions from number `first` on.
template <int kRun, int kCount>
__device__ inline void begin_part(float (&part)[kCount], const operands &at, int first) {
  keep(part);
  ptx::wgmma_fence();
#pragma unroll
  for (int i = 0; i < kRun; i++)
    multiply(part, descriptor(at.w + 2 * (first + i)), descriptor(at.x + 2 * (first + i)), i > 0);
  ptx::wgmma_commit();
}

// Adds a part once all but kPending of those begun are done.
template <int kPending, int kCount> __device__ inline void add_part(float (&sum)[kCount], float (&part)[kCount]) {
  ptx::wgmma_wait<kPending>();
  keep(part);
#pragma unroll
  for (int i = 0; i < kCount; i++)
    sum[i] += part[i];
}

// The warpgroup's operands of a step, once they have come.
template <typename T> __device__ inline operands wait_for_step(shared<T> &s, const cursor &at, int slab) {
  ptx::barrier_wait(ptx::shared_address(&s.full[at.stage]), at.phase);
  const uint32_t ring = ptx::shared_address(s.ring) + at.stage * T::slot_bytes;
  return {lower_half(ring + slab * 64 * FP8_MANY_STEP), lower_half(ring + T::x_at)};
}

// The sums of so many steps of 64 rows of W, where they leave the tensor cores after each. One part is added while
// these have the next. A part that is under way from one turn of the loop to the next would have the assembler wait for
// every single instruction, so turns are long.
template <typename T>
__device__ inline void multiply_in_turn(shared<T> &s, cursor &at, uint32_t steps, int slab,
                                        float (&sum)[T::of_thread]) {
  constexpr int turn = T::columns == 128 ? 8 : 4; // of other widths the assembler finds registers for no more
  float even[T::of_thread], odd[T::of_thread];
  const auto begin = [&](float(&part)[T::of_thread]) { begin_part<instructions>(part, wait_for_step(s, at, slab), 0); };
  const auto exchange = [&](float(&next)[T::of_thread], float(&done)[T::of_thread]) {
    const uint32_t before = at.stage;
    at.advance();
    begin(next);
    add_part<1>(sum, done);
    give_back(s, before);
  };
  const auto end = [&](float(&part)[T::of_thread]) {
    add_part<0>(sum, part);
    give_back(s, at.stage);
    at.advance();
  };
#pragma unroll 1
  for (; steps >= turn; steps -= turn) {
    begin(even);
    exchange(odd, even);
#pragma unroll
    for (int i = 2; i < turn; i += 2) {
      exchange(even, odd);
      exchange(odd, even);
    }
    end(odd);
  }
#pragma unroll 1
  for (; steps > 0; steps--) {
    begin(even);
    end(even);
  }
}

// The same of sums that leave after every instruction.
template <typename T>
__device__ inline void multiply_finely(shared<T> &s, cursor &at, uint32_t steps, int slab, float (&sum)[T::of_thread]) {
  static_assert(instructions == 4, "two parts in turn");
  float even[T::of_thread], odd[T::of_thread];
#pragma unroll 1
  for (; steps > 0; steps--) {
    const operands step = wait_for_step(s, at, slab);
    begin_part<1>(even, step, 0);
    begin_part<1>(odd, step, 1);
    add_part<1>(sum, even);
    begin_part<1>(even, step, 2);
    add_part<1>(sum, odd);
    begin_part<1>(odd, step, 3);
    add_part<1>(sum, even);
    add_part<0>(sum, odd);
    give_back(s, at.stage);
    at.advance();
  }
}

// With registers for one part of 64 rows of W: other warpgroups have the tensor cores while this one adds.
template <typename T>
__device__ inline void multiply_alone(shared<T> &s, cursor &at, uint32_t steps, int slab,
                                      float (&sum)[T::slabs][T::of_thread]) {
  float part[T::of_thread];
#pragma unroll 1
  for (; steps > 0; steps--, at.advance()) {
    const operands step = wait_for_step(s, at, slab);
#pragma unroll
    for (int j = 0; j < T::slabs; j++) {
      begin_part<instructions>(part, {step.w + j * (64 * FP8_MANY_STEP >> 4), step.x}, 0);
      add_part<0>(sum[j], part);
    }
    give_back(s, at.stage);
  }
}

// Integers, which stay in the tensor cores: a step's products are begun before those of the step ahead are done.
template <typename T>
__device__ inline void multiply_integers(shared<T> &s, cursor &at, uint32_t steps, int slab,
                                         int (&sum)[T::slabs][T::of_thread]) {
  uint32_t before = 0;
#pragma unroll 1
  for (uint32_t step = 0; step < steps; step++, at.advance()) {
    const operands here = wait_for_step(s, at, slab);
#pragma unroll
    for (int j = 0; j < T::slabs; j++)
      keep(sum[j]);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < instructions; i++)
#pragma unroll
      for (int j = 0; j < T::slabs; j++)
        multiply(sum[j], descriptor(here.w + j * (64 * FP8_MANY_STEP >> 4) + 2 * i), descriptor(here.x + 2 * i), true);
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();
    if (step > 0)
      give_back(s, before);
    before = at.stage;
  }
  ptx::wgmma_wait<0>();
#pragma unroll
  for (int j = 0; j < T::slabs; j++)
    keep(sum[j]);
  if (steps > 0)
    give_back(s, before);
}

template <typename T>
__device__ inline void multiply_steps(shared<T> &s, cursor &at, uint32_t steps, int slab,
                                      typename T::Sum (&sum)[T::slabs][T::of_thread]) {
  if constexpr (T::kind == sums::scaled)
    multiply_codes(s, at, steps, slab, sum[0]);
  else if constexpr (T::kind == sums::integers)
    multiply_integers(s, at, steps, slab, sum);
  else if constexpr (T::kind == sums::every_32)
    multiply_finely(s, at, steps, slab, sum[0]);
  else if constexpr (T::rows == FP8_MANY_ROWS_LEAST)
    multiply_in_turn(s, at, steps, slab, sum[0]);
  else
    multiply_alone(s, at, steps, slab, sum);
}

// ---- the whole

// Columns that this block of a cluster has of a tile, summed and written.
template <int kSplit, typename T>
__device__ inline void finish_cluster(const work &w, shared<T> &s, int64_t m, int64_t n, int group,
                                      typename T::Sum (&sum)[T::of_thread], const factors &f) {
  const int rank = static_cast<int>(blockIdx.x);
  join<kSplit, T>(rank, group, sum, ptx::shared_address(s.ring) + stages_of<T>(w.plan) * T::slot_bytes,
                  ptx::shared_address(&s.joined));
  write_y<T::template eights_of_block<kSplit>>(w, s, m, n, group, sum, f, span_of<kSplit, T>(rank));
}

// y of one warpgroup's 64 rows of W, number `slab` of a tile's that `split` blocks have.
template <typename T>
__device__ inline void finish(const work &w, shared<T> &s, const place &tile, int split, int slab,
                              typename T::Sum (&sum)[T::of_thread], const factors &f) {
  const int group = threadIdx.x / 128;
  const int64_t m = static_cast<int64_t>(tile.x) * w.plan.columns,
                n = static_cast<int64_t>(tile.w) * T::rows + slab * 64;
  if constexpr (T::slabs == 1) {
    if (split == 2)
      return finish_cluster<2>(w, s, m, n, group, sum, f);
    if (split == 3)
      return finish_cluster<3>(w, s, m, n, group, sum, f);
    if (split == 4)
      return finish_cluster<4>(w, s, m, n, group, sum, f);
  }
  write_y<T::eights>(w, s, m, n, group, sum, f, span{0, T::eights});
}

template <typename T> __device__ inline void consume(const work &w, shared<T> &s) {
  const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  cursor at(stages_of<T>(w.plan));
  segment part;
  ptx::wait_for_previous_grid();
#pragma unroll 1
  for (segments list; list.next(w.plan, part);) {
    const place tile(w.plan, part.tile);
    const int64_t m = static_cast<int64_t>(tile.x) * w.plan.columns, n = static_cast<int64_t>(tile.w) * T::rows;
    factors f(w.product, m, n + group * T::slabs * 64);
    if constexpr (T::coded)
      f.w_scale[0] = f.w_scale[1] = 1; // no registers for what lies in the tiles
    typename T::Sum sum[T::slabs][T::of_thread];
#pragma unroll
    for (int j = 0; j < T::slabs; j++)
#pragma unroll
      for (int i = 0; i < T::of_thread; i++)
        sum[j][i] = 0;
    multiply_steps(s, at, part.last - part.first, group * T::slabs, sum);
    finish(w, s, tile, part.split, group * T::slabs, sum[0], f);
    if constexpr (T::slabs == 2)
      finish(w, s, tile, 1, group * T::slabs + 1, sum[1], factors(w.product, m, n + group * 128 + 64));
  }
}

template <typename T> __device__ inline uint32_t expected_bytes(int split) {
  const int rank = static_cast<int>(blockIdx.x);
  return split == 2 ? joined_bytes<2, T>(rank) : split == 3 ? joined_bytes<3, T>(rank) : joined_bytes<4, T>(rank);
}

template <typename T> __global__ void __launch_bounds__(T::threads, 1) run(const __grid_constant__ work w) {
  extern __shared__ uint8_t raw[];
  const uint32_t begin = ptx::shared_address(raw), skipped = ((begin + 1023) & ~1023u) - begin;
  auto &s = *reinterpret_cast<shared<T> *>(raw + skipped);
  ptx::let_next_grid_start();
  if (threadIdx.x == T::consumers)
    ptx::prefetch_tensor_map(&w.w);
  else if (threadIdx.x == T::consumers + 32)
    ptx::prefetch_tensor_map(&w.x);
  // A barrier takes who makes it some 30 cycles: so a lane of each warp makes two.
  static_assert(T::slots < T::threads / 32);
  if (threadIdx.x % 32 == 0) {
    const int warp = threadIdx.x / 32;
    if (warp < T::slots) {
      ptx::barrier_init(ptx::shared_address(&s.full[warp]), copying);
      ptx::barrier_init(ptx::shared_address(&s.empty[warp]), T::consumers / 32);
    } else if (warp == T::slots && w.plan.split_k > 1) {
      ptx::barrier_init(ptx::shared_address(&s.joined), 1);
      ptx::barrier_expect(ptx::shared_address(&s.joined), expected_bytes<T>(w.plan.split_k));
    }
    ptx::fence_barrier_init();
  }
  __syncthreads();
  if (w.plan.split_k > 1)
    ptx::cluster_arrive_relaxed();
  if (threadIdx.x >= T::consumers) {
    ptx::registers_decrease<T::producer_registers>();
    if (threadIdx.x == T::consumers)
      produce_w(w, s);
    else if (threadIdx.x == T::consumers + 32)
      produce_x(w, s);
  } else {
    ptx::registers_increase<T::consumer_registers>();
    consume(w, s);
  }
}

} // namespace fp8_many
