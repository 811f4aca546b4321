// The kernel of grouped_many/config.h.
#pragma once

#include "../../../device/wgmma.cuh"
#include "../../../experts/pieces.cuh"
#include "write.cuh"

#include <type_traits>

namespace grouped_many {

// ---- copies, by one thread

// Rows of x of a piece, in the fewest boxes that there are.
__device__ inline void copy_x(const work &w, uint32_t to, int column, int row, int rows, uint32_t full) {
#pragma unroll
  for (int i = GROUPED_MANY_BOXES - 1; i >= 0; i--) {
    if (rows < GROUPED_MANY_BOX(i))
      continue;
    ptx::copy_tensor(to, &w.x[i], column, row, full);
    to += GROUPED_MANY_BOX(i) * step_bytes;
    row += GROUPED_MANY_BOX(i);
    rows -= GROUPED_MANY_BOX(i);
  }
}

// Steps of the piece. Blocks that fetch the same bytes of W share them on the way from the L2 only where nothing is
// said of how long they stay there.
__device__ inline void copy_piece(const work &w, shared &s, cursor &at, const piece &p, bool once) {
  const int rows = (p.rows + 7) / 8 * 8, row = static_cast<int>(p.expert * w.product.n) + p.row;
  const uint32_t bytes = shared::w_bytes + static_cast<uint32_t>(rows) * step_bytes;
  const uint64_t policy = ptx::policy_evict_first();
#pragma unroll 1
  for (int step = 0; step < w.steps; step++, at.advance()) {
    const uint32_t full = ptx::shared_address(&s.full[at.stage]), to = ptx::shared_address(s.ring[at.stage]);
    ptx::barrier_wait(ptx::shared_address(&s.empty[at.stage]), at.phase ^ 1);
    ptx::barrier_expect(full, bytes);
    if (once)
      ptx::copy_tensor_once(to, &w.w, step * step_bytes, row, full, policy);
    else
      ptx::copy_tensor(to, &w.w, step * step_bytes, row, full);
    copy_x(w, to + shared::w_bytes, step * step_bytes, p.first, rows, full);
  }
}

// Gives the next piece to those who multiply and to the warp that fetches what y is made with.
__device__ inline void name_piece(shared &s, cursor_of<2> &turn, const piece &p) {
  ptx::barrier_wait(ptx::shared_address(&s.written[turn.stage]), turn.phase ^ 1);
  s.side[turn.stage].of = p;
  ptx::barrier_arrive(ptx::shared_address(&s.named[turn.stage]));
  turn.advance();
}

// Two tiles that are beside each other have pieces of the same rows of W one behind the other, so that blocks want the
// same bytes at a time.
__device__ inline piece piece_of(const work &w, int number, bool &once) {
  const experts_tile *const tiles = w.product.route.tiles;
  const int near = number / w.pieces;
  experts_tile t = tiles[near];
  const int first = near - (t.beside < 0), count = t.beside == 0 ? 1 : 2;
  const int rest = number - first * w.pieces, tile = first + rest % count;
  if (tile != near)
    t = tiles[tile];
  once = t.alone != 0;
  return {t.expert, t.first, t.rows, rest / count * GROUPED_MANY_ROWS};
}

__device__ inline void produce(const work &w, shared &s) {
  cursor at;
  cursor_of<2> turn;
  experts::take_pieces(w.product.route, w.pieces, [&](int number) {
    bool once;
    const piece p = piece_of(w, number, once);
    name_piece(s, turn, p);
    copy_piece(w, s, at, p, once);
  });
  name_piece(s, turn, {-1, 0, 0, 0});
}

// By a warp, for pieces as they are named.
__device__ inline void fetch_pieces(const work &w, shared &s) {
  cursor_of<2> turn;
  ptx::wait_for_previous_grid();
#pragma unroll 1
  for (;; turn.advance()) {
    ptx::barrier_wait(ptx::shared_address(&s.named[turn.stage]), turn.phase);
    if (s.side[turn.stage].of.expert < 0)
      return;
    fetch(w.product, s.side[turn.stage]);
    ptx::barrier_arrive(ptx::shared_address(&s.fetched[turn.stage]));
  }
}

// ---- products

constexpr int instructions = step_bytes / 32;

template <typename T, int kCount> __device__ inline void keep(T (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; i++)
    ptx::keep(d[i]);
}

__device__ inline void give_back(shared &s, int stage) {
  if (threadIdx.x % 32 == 0)
    ptx::barrier_arrive(ptx::shared_address(&s.empty[stage]));
}

// FP8: sums leave the tensor cores every 128 of K, for they lose bits there; the other warpgroup has them meanwhile.
template <int kCount>
__device__ inline void multiply(shared &s, cursor &at, int steps, int group, float (&sum)[halves][kCount]) {
#pragma unroll 1
  for (; steps > 0; steps--, at.advance()) {
    ptx::barrier_wait(ptx::shared_address(&s.full[at.stage]), at.phase);
    const uint32_t ring = ptx::shared_address(s.ring[at.stage]);
    const uint64_t w = ptx::swizzled_descriptor(ring + halves * group * half_bytes),
                   x = ptx::swizzled_descriptor(ring + shared::w_bytes);
#pragma unroll
    for (int j = 0; j < halves; j++) {
      float part[kCount];
      keep(part);
      ptx::wgmma_fence();
#pragma unroll
      for (int i = 0; i < instructions; i++)
        ptx::wgmma_e4m3(part, w + j * (half_bytes >> 4) + 2 * i, x + 2 * i, i > 0);
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
      if (j == halves - 1)
        give_back(s, at.stage);
#pragma unroll
      for (int i = 0; i < kCount; i++) {
        ptx::keep(part[i]);
        sum[j][i] += part[i];
      }
    }
  }
}

// INT8: sums are exact where they are. A step is under way while the next one is waited for.
template <int kCount>
__device__ inline void multiply(shared &s, cursor &at, int steps, int group, int (&sum)[halves][kCount]) {
  int before = -1;
#pragma unroll 1
  for (int step = 0; step < steps; step++, at.advance()) {
    ptx::barrier_wait(ptx::shared_address(&s.full[at.stage]), at.phase);
    const uint32_t ring = ptx::shared_address(s.ring[at.stage]);
    const uint64_t w = ptx::swizzled_descriptor(ring + halves * group * half_bytes),
                   x = ptx::swizzled_descriptor(ring + shared::w_bytes);
    keep(sum[0]);
    keep(sum[1]);
    ptx::wgmma_fence();
#pragma unroll
    for (int j = 0; j < halves; j++)
#pragma unroll
      for (int i = 0; i < instructions; i++)
        ptx::wgmma_s8(sum[j], w + j * (half_bytes >> 4) + 2 * i, x + 2 * i, step > 0 || i > 0);
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();
    if (before >= 0)
      give_back(s, before);
    before = at.stage;
  }
  ptx::wgmma_wait<0>();
  keep(sum[0]);
  keep(sum[1]);
  give_back(s, before);
}

template <typename T, typename Y, int kWidth>
__device__ inline void compute(const work &w, shared &s, cursor &at, const cursor_of<2> &turn, int group) {
  T sum[halves][kWidth / 2];
#pragma unroll
  for (int j = 0; j < halves; j++)
#pragma unroll
    for (int i = 0; i < kWidth / 2; i++)
      sum[j][i] = T();
  multiply(s, at, w.steps, group, sum);
  ptx::barrier_wait(ptx::shared_address(&s.fetched[turn.stage]), turn.phase);
#pragma unroll
  for (int j = 0; j < halves; j++)
    write_half<Y, kWidth>(w.product, s, s.side[turn.stage], (halves * group + j) * 64, group, sum[j]);
}

template <typename T, typename Y> __device__ inline void consume(const work &w, shared &s) {
  const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  constexpr bool fine = std::is_same_v<T, float>; // which takes any multiple of eight
  cursor at;
  ptx::wait_for_previous_grid();
#pragma unroll 1
  for (cursor_of<2> turn;; turn.advance()) {
    ptx::barrier_wait(ptx::shared_address(&s.named[turn.stage]), turn.phase);
    const piece p = s.side[turn.stage].of;
    if (p.expert < 0)
      return;
    if (p.rows <= 32)
      compute<T, Y, 32>(w, s, at, turn, group);
    else if (p.rows <= 64)
      compute<T, Y, 64>(w, s, at, turn, group);
    else if (p.rows <= 96)
      compute<T, Y, 96>(w, s, at, turn, group);
    else if (p.rows <= 112)
      compute<T, Y, 112>(w, s, at, turn, group);
    else if (fine && p.rows <= 120)
      compute<T, Y, fine ? 120 : 32>(w, s, at, turn, group);
    else if (p.rows <= 128)
      compute<T, Y, 128>(w, s, at, turn, group);
    else if (fine && p.rows <= 136)
      compute<T, Y, fine ? 136 : 32>(w, s, at, turn, group);
    else
      compute<T, Y, 144>(w, s, at, turn, group);
    if (threadIdx.x % 32 == 0)
      ptx::barrier_arrive(ptx::shared_address(&s.written[turn.stage]));
  }
}

template <typename T, typename Y> __global__ void __launch_bounds__(threads, 1) run(const __grid_constant__ work w) {
  extern __shared__ uint8_t raw[];
  const uint32_t begin = ptx::shared_address(raw), skipped = ((begin + 1023) & ~1023u) - begin;
  auto &s = *reinterpret_cast<shared *>(raw + skipped);
  if (threadIdx.x == 0) {
    for (int i = 0; i < stages; i++) {
      ptx::barrier_init(ptx::shared_address(&s.full[i]), 1);
      ptx::barrier_init(ptx::shared_address(&s.empty[i]), consumers / 32);
    }
    for (int i = 0; i < 2; i++) {
      ptx::barrier_init(ptx::shared_address(&s.named[i]), 1);
      ptx::barrier_init(ptx::shared_address(&s.fetched[i]), 32);
      ptx::barrier_init(ptx::shared_address(&s.written[i]), consumers / 32);
    }
    ptx::fence_barrier_init();
  }
  if (threadIdx.x == consumers) {
    ptx::prefetch_tensor_map(&w.w);
    for (int i = 0; i < GROUPED_MANY_BOXES; i++)
      ptx::prefetch_tensor_map(&w.x[i]);
  }
  __syncthreads();
  ptx::let_next_grid_start();
  if (threadIdx.x >= consumers) {
    ptx::registers_decrease<producer_registers>();
    if (threadIdx.x == consumers)
      produce(w, s);
    else if (threadIdx.x / 32 == consumers / 32 + 1)
      fetch_pieces(w, s);
  } else {
    ptx::registers_increase<consumer_registers>();
    consume<T, Y>(w, s);
  }
}

} // namespace grouped_many
