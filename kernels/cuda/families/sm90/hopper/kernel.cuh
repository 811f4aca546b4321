// The kernel of hopper/config.h. Copies run `ahead` steps before the tensor cores, in a ring of one slot more.
#pragma once

#include "epilogue.cuh"
#include "multiply.cuh"

namespace hopper {

// Scales of W for this thread's two rows in one block of K. Rows behind the end have none that matters.
__device__ inline void load_block_scales(const hopper_product &p, int64_t row, int block, float (&out)[2]) {
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const int64_t n = min(row + 8 * i, p.n - 1);
    out[i] = block < p.k / GEMM_GROUP ? __ldg(p.w_scale + n / GEMM_GROUP * p.w_scale_stride + block) : 0.0f;
  }
}

// Warpgroups of a block: as many as registers allow.
constexpr int groups_most(sums kind, int columns) {
  return (columns == 32 || columns == 64) && kind != sums::block_scaled ? 3 : 2;
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

template <sums kSums, int kColumns, typename T, typename... Rest>
__device__ inline void write_eights(const hopper_product &p, const Rest &...rest) {
  if constexpr (kSums == sums::every_128) {
    write_eights<kColumns, __nv_bfloat16, T>(p, rest...);
  } else {
    if (kSums != sums::every_32 && p.y_type == GEMM_BF16)
      write_eights<kColumns, __nv_bfloat16, T>(p, rest...);
    else if (p.y_type == GEMM_F16)
      write_eights<kColumns, __half, T>(p, rest...);
    else if (p.y_type == GEMM_F32)
      write_eights<kColumns, float, T>(p, rest...);
    else if constexpr (kSums == sums::integers)
      write_eights<kColumns, int, T>(p, rest...);
  }
}

// What of W follows the ring, into the L2: the device's memory would rest until x is there.
__device__ inline void fetch_beyond(const work &w, const part &at) {
  const int row = static_cast<int>(threadIdx.x), first = (at.first_step + w.ahead) * step_bytes;
  const int left = min((at.steps - w.ahead) * step_bytes, static_cast<int>(w.product.k) - first),
            bytes = min(w.start.beyond, left);
  if (row < at.rows && bytes > 0)
    ptx::prefetch_bulk(static_cast<const uint8_t *>(w.product.w) + (at.first_row + row) * w.product.w_stride + first,
                       bytes);
}

// One warp a scheduler runs an instruction in 4 to 6 cycles, so what stands before the first copies and behind the last
// products counts: no divisions, and nothing is looked at before the first steps of W and x are under way.
template <sums kSums, int kColumns>
__global__ void __launch_bounds__(128 * groups_most(kSums, kColumns)) run(const __grid_constant__ work w) {
  using T = typename sum_of<kSums>::type;
  constexpr bool blocks_of_k = kSums == sums::block_scaled;
  constexpr uint32_t x_chunk = kColumns * chunk_bytes, x_bytes = 2 * x_chunk,
                     scale_bytes = blocks_of_k ? 2 * kColumns * sizeof(float) : 0;
  extern __shared__ uint8_t raw[];
  const hopper_product &p = w.product;
  constexpr bool counted = kColumns > 8;
  const uint32_t zero = counted ? ptx::unknown_zero() : 0;
  const part at(w, kColumns);
  const int slots = w.ahead + 1;
  const uint32_t w_chunk = w.rows * chunk_bytes, w_bytes = 2 * w_chunk;
  const uint32_t begin = (ptx::shared_address(raw) + 1023) & ~1023u; // the swizzle counts from there
  const uint32_t x_begin = begin + slots * w_bytes, scales_begin = x_begin + slots * x_bytes;

  const row_copies w_copies(p.w, p.w_stride, at.first_row, at.rows, p.k, at.first_step, w_chunk, w.inverse, zero);
  const uint64_t once = ptx::policy_evict_first();
  const auto fetch_w = [&](int slot, int step) {
    if (step < at.steps)
      w_copies.fetch<3 * group_rows, counted>(
          begin + slot * w_bytes, step,
          [&](uint32_t to, const uint8_t *from, uint32_t bytes) { ptx::copy_async_16_once(to, from, bytes, once); });
  };
  // The first copies before what x's want is computed, which the compiler would do first. Not with 64 columns and more:
  // at 8192x28672 and 57344x8192, where the card's power decides, they took 4 % longer by it.
  constexpr bool early = kColumns < 64;
  if constexpr (early) {
    fetch_w(0, 0);
    __syncwarp(); // lanes have different numbers of rows to fetch: without this they stay apart up to the loop
  }
  const row_copies x_copies(p.x, p.x_stride, at.first_m, at.m, p.k, at.first_step, x_chunk, w.inverse, zero);
  const auto fetch_x = [&](int slot, int step) {
    if (step >= at.steps)
      return;
    x_copies.fetch<kColumns, counted>(x_begin + slot * x_bytes, step, ptx::copy_async_16);
    if (blocks_of_k)
      fetch_block_scales<kColumns>(scales_begin + slot * scale_bytes, p.x_scale, p.x_scale_stride, at.first_m,
                                   at.first_step + step, static_cast<int>(p.k / GEMM_GROUP));
  };
  // The scales of the rows of x stand in front of the barrier.
  const uint32_t x_scales = begin + w.sums - join_barrier_bytes - kColumns * sizeof(float);
  const auto begin_x = [&](int i) {
    fetch_x(i, i);
    if (i == 0)
      fetch_x_scales<kColumns>(x_scales, blocks_of_k ? nullptr : p.x_scale, at.first_m, at.m);
    ptx::copy_async_commit();
  };
#pragma unroll 1
  for (int i = 0; i < w.ahead; i++) {
    if (!early || i > 0)
      fetch_w(i, i);
    if (!w.start.dependent)
      begin_x(i);
  }
  if (w.start.dependent) {
    ptx::copy_async_commit();
    if (w.start.beyond > 0)
      fetch_beyond(w, at);
    if (w.start.let == 0 || at.steps <= w.start.let)
      ptx::let_next_grid_start();
    ptx::wait_for_previous_grid();
#pragma unroll 1
    for (int i = 0; i < w.ahead; i++)
      begin_x(i);
  }
  const int ranks = static_cast<int>(gridDim.y), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int rank = static_cast<int>(blockIdx.y), eights = (at.m + eight - 1) / eight;
  const join j = {rank,
                  ranks,
                  eights,
                  eights_of_rank<kColumns>(rank, ranks, eights),
                  (w.rows + warp_rows - 1) / warp_rows,
                  w.places,
                  begin + w.sums};
  if (ranks > 1) {
    if (threadIdx.x == 0) {
      ptx::barrier_init(j.joined(), 1);
      ptx::barrier_expect(j.joined(), j.bytes(at.rows));
      ptx::fence_barrier_init();
    }
    __syncwarp();
    ptx::cluster_arrive_relaxed();
  }
  two_rows rows(p, at.first_row + warp * warp_rows, lane, !blocks_of_k);
  const run_of_y run(p, at, j, kSums == sums::every_128 || p.y_type == GEMM_F16 || p.y_type == GEMM_BF16 ? 2 : 4,
                     by_warps<kColumns> ? 32 : 128, by_warps<kColumns> ? warp_rows : group_rows);

  T sum[kColumns / 2] = {};
  const int group = __shfl_sync(0xffffffff, threadIdx.x / 128, 0); // so that the compiler knows it for the warp's
  int slot = 0, next = w.ahead;
#pragma unroll 1
  for (int step = 0; step < at.steps; step++) {
    wait_for_step(w.ahead);
    ptx::fence_async_shared();
    __syncthreads();
    // While the first products are under way; into the slot of the last step.
    const auto fetch_next = [&] {
      fetch_w(next, step + w.ahead);
      fetch_x(next, step + w.ahead);
      ptx::copy_async_commit();
      if (w.start.let > 0 && step + w.start.let == at.steps)
        ptx::let_next_grid_start();
      __syncwarp(); // lanes have different numbers of rows to fetch; the tensor cores want the warp together
    };
    const step_operands operands = {begin + slot * w_bytes + group * group_rows * chunk_bytes, w_chunk,
                                    x_begin + slot * x_bytes, x_chunk};
    if constexpr (kSums == sums::integers) {
      multiply_step(sum, operands, step == 0, fetch_next);
    } else if constexpr (kSums == sums::every_128) {
      multiply_parts<chunk_instructions, step_instructions>(sum, operands, 0, fetch_next);
    } else if constexpr (kSums == sums::every_32) {
      multiply_parts<1, step_instructions>(sum, operands, 0, fetch_next);
    } else {
      const float *scales =
          reinterpret_cast<const float *>(raw + (scales_begin - ptx::shared_address(raw)) + slot * scale_bytes);
      const int64_t row = at.first_row + warp * warp_rows + lane / 4;
      fetch_next();
#pragma unroll
      for (int chunk = 0; chunk < 2; chunk++) {
        float w_scale[2];
        load_block_scales(p, row, 2 * (at.first_step + step) + chunk, w_scale);
        multiply_block(sum, operands, chunk, w_scale, scales + chunk * kColumns);
      }
    }
    slot = slot == w.ahead ? 0 : slot + 1;
    next = next == w.ahead ? 0 : next + 1;
  }

  if (ranks > 1) {
    ptx::cluster_wait(); // all blocks have begun
    if (warp * warp_rows < at.rows)
      j.send(sum, warp, lane);
  }
  // Sums and rows of y go over the ring. By warps over a slot that has been read: `slot`, not the last step's. A rank
  // with no steps has not waited for the scales of x.
  if (!by_warps<kColumns> || at.steps == 0) {
    ptx::copy_async_wait<0>();
    __syncthreads();
  }
  if (j.rank >= j.eights)
    return;
  rows.widen_bias(p.bias_type);
  const uint32_t here =
      begin + (by_warps<kColumns> ? slot * w_bytes + warp * behind<kColumns>::bytes : group * behind<kColumns>::bytes);
  write_eights<kSums, kColumns, T>(p, rows, at, j, sum, run, x_scales, here, warp, lane);
}

} // namespace hopper
