// The ring of steps in shared memory: where they lie, and the copies that fill it, `ahead` steps before the tensor
// cores.
#pragma once

#include "copy.cuh"
#include "multiply.cuh"

namespace hopper {

template <int kColumns> constexpr bool counts_copies = kColumns > 8; // see row_copies::fetch

// Addresses in shared memory.
template <sums kSums, int kColumns> struct ring {
  static constexpr bool blocks_of_k = kSums == sums::block_scaled;
  static constexpr uint32_t x_chunk = kColumns * chunk_bytes, x_bytes = 2 * x_chunk,
                            scale_bytes = blocks_of_k ? 2 * kColumns * sizeof(float) : 0;
  uint32_t w_chunk, w_bytes;             // of a slot
  uint32_t begin, x_begin, scales_begin; // of W, of x, of x's scales of blocks of K

  __device__ ring(const work &w, uint32_t raw) {
    const int slots = w.ahead + 1;
    w_chunk = w.rows * chunk_bytes;
    w_bytes = 2 * w_chunk;
    begin = (raw + 1023) & ~1023u; // the swizzle counts from there
    x_begin = begin + slots * w_bytes;
    scales_begin = x_begin + slots * x_bytes;
  }

  // Of the rows of x; in front of the barrier.
  __device__ uint32_t x_scales(const work &w) const {
    return begin + w.sums - join_barrier_bytes - kColumns * sizeof(float);
  }

  __device__ step_operands operands(int slot, int group) const {
    return {begin + slot * w_bytes + group * group_rows * chunk_bytes, w_chunk, x_begin + slot * x_bytes, x_chunk};
  }
};

// This thread's copies of W.
template <sums kSums, int kColumns> struct w_fetcher {
  const ring<kSums, kColumns> &to;
  row_copies copies;
  uint64_t once;
  int steps;

  __device__ w_fetcher(const ring<kSums, kColumns> &to, const work &w, const part &at, uint32_t zero)
      : to(to), copies(w.product.w, w.product.w_stride, at.first_row, at.rows, w.product.k, at.first_step, to.w_chunk,
                       w.inverse, zero),
        once(ptx::policy_evict_first()), steps(at.steps) {}

  __device__ void operator()(int slot, int step) const {
    if (step < steps)
      copies.template fetch<3 * group_rows, counts_copies<kColumns>>(
          to.begin + slot * to.w_bytes, step, [&](uint32_t into, const uint8_t *from, uint32_t bytes) {
            ptx::copy_async_16_once(into, from, bytes, once);
          });
  }
};

// This thread's copies of x and of its scales.
template <sums kSums, int kColumns> struct x_fetcher {
  const ring<kSums, kColumns> &to;
  const hopper_product &p;
  const part &at;
  row_copies copies;
  uint32_t scales; // of this block's rows, in shared memory

  __device__ x_fetcher(const ring<kSums, kColumns> &to, const work &w, const part &at, uint32_t zero)
      : to(to), p(w.product), at(at),
        copies(p.x, p.x_stride, at.first_m, at.m, p.k, at.first_step, to.x_chunk, w.inverse, zero),
        scales(to.x_scales(w)) {}

  __device__ void operator()(int slot, int step) const {
    if (step >= at.steps)
      return;
    copies.template fetch<kColumns, counts_copies<kColumns>>(to.x_begin + slot * to.x_bytes, step, ptx::copy_async_16);
    if (to.blocks_of_k)
      fetch_block_scales<kColumns>(to.scales_begin + slot * to.scale_bytes, p.x_scale, p.x_scale_stride, at.first_m,
                                   at.first_step + step, static_cast<int>(p.k / GEMM_GROUP));
  }

  // One of the first steps.
  __device__ void begin(int i) const {
    (*this)(i, i);
    if (i == 0)
      fetch_x_scales<kColumns>(scales, to.blocks_of_k ? nullptr : p.x_scale, at.first_m, at.m);
    ptx::copy_async_commit();
  }
};

// What of W follows the ring, into the L2: the device's memory would rest until x is there.
__device__ inline void fetch_beyond(const work &w, const part &at) {
  const int row = static_cast<int>(threadIdx.x), first = (at.first_step + w.ahead) * step_bytes;
  const int left = min((at.steps - w.ahead) * step_bytes, static_cast<int>(w.product.k) - first),
            bytes = min(w.start.beyond, left);
  if (row < at.rows && bytes > 0)
    ptx::prefetch_bulk(static_cast<const uint8_t *>(w.product.w) + (at.first_row + row) * w.product.w_stride + first,
                       bytes);
}

// The first `ahead` steps. `under_way`: the first of W is. Where the grid before this one makes x, W does not wait for
// its end.
template <sums kSums, int kColumns>
__device__ inline void begin_copies(const work &w, const part &at, const w_fetcher<kSums, kColumns> &fetch_w,
                                    const x_fetcher<kSums, kColumns> &fetch_x, bool under_way) {
#pragma unroll 1
  for (int i = 0; i < w.ahead; i++) {
    if (!under_way || i > 0)
      fetch_w(i, i);
    if (!w.start.dependent)
      fetch_x.begin(i);
  }
  if (!w.start.dependent)
    return;
  ptx::copy_async_commit();
  if (w.start.beyond > 0)
    fetch_beyond(w, at);
  if (w.start.let == 0 || at.steps <= w.start.let)
    ptx::let_next_grid_start();
  ptx::wait_for_previous_grid();
#pragma unroll 1
  for (int i = 0; i < w.ahead; i++)
    fetch_x.begin(i);
}

// Until the copies of all steps but the last `ahead` - 1 have come.
__device__ inline void wait_for_step(int ahead) {
  if (ahead == 3)
    ptx::copy_async_wait<2>();
  else if (ahead == 6)
    ptx::copy_async_wait<5>();
  else if (ahead == 2)
    ptx::copy_async_wait<1>();
  else
    ptx::copy_async_wait<3>();
}

} // namespace hopper
