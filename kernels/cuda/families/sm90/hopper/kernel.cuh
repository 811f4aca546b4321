// The kernel of hopper/config.h. Copies run `ahead` steps before the tensor cores, in a ring of one slot more.
#pragma once

#include "epilogue.cuh"
#include "ring.cuh"

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

template <sums kSums, int kColumns, typename T, typename... Rest>
__device__ inline void write_eights(const hopper_product &p, const Rest &...rest) {
  if constexpr (kSums == sums::every_128) {
    write_eights<kColumns, __nv_bfloat16, T>(p, rest...);
  } else {
    if ((kSums != sums::every_32 || kColumns <= fine_columns) && p.y_type == GEMM_BF16)
      write_eights<kColumns, __nv_bfloat16, T>(p, rest...);
    else if (p.y_type == GEMM_F16)
      write_eights<kColumns, __half, T>(p, rest...);
    else if (p.y_type == GEMM_F32)
      write_eights<kColumns, float, T>(p, rest...);
    else if constexpr (kSums == sums::integers)
      write_eights<kColumns, int, T>(p, rest...);
  }
}

// The products of one step, whose operands have come; `meanwhile`: what is done while the first are under way.
// `scales`: of x, two rows of blocks of K.
template <sums kSums, int kColumns, typename T, typename Meanwhile>
__device__ inline void run_step(T (&sum)[kColumns / 2], const hopper_product &p, const step_operands &operands,
                                const part &at, int step, int64_t row, const float *scales,
                                const Meanwhile &meanwhile) {
  if constexpr (kSums == sums::integers) {
    multiply_step(sum, operands, step == 0, meanwhile);
  } else if constexpr (kSums == sums::every_128) {
    multiply_parts<chunk_instructions, step_instructions>(sum, operands, 0, meanwhile);
  } else if constexpr (kSums == sums::every_32) {
    multiply_parts<1, step_instructions>(sum, operands, 0, meanwhile);
  } else {
    meanwhile();
#pragma unroll
    for (int chunk = 0; chunk < 2; chunk++) {
      float w_scale[2];
      load_block_scales(p, row, 2 * (at.first_step + step) + chunk, w_scale);
      multiply_block(sum, operands, chunk, w_scale, scales + chunk * kColumns);
    }
  }
}

// How the blocks of a cluster share the sums of a tile.
template <int kColumns> __device__ inline join join_of(const work &w, const part &at, uint32_t begin) {
  const int ranks = static_cast<int>(gridDim.y), rank = static_cast<int>(blockIdx.y),
            eights = (at.m + eight - 1) / eight;
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
  return j;
}

// One warp a scheduler runs an instruction in 4 to 6 cycles, so what stands before the first copies and behind the last
// products counts: no divisions, and nothing is looked at before the first steps of W and x are under way.
template <sums kSums, int kColumns>
__global__ void __launch_bounds__(128 * groups_most(kSums, kColumns)) run(const __grid_constant__ work w) {
  using T = typename sum_of<kSums>::type;
  extern __shared__ uint8_t raw[];
  const hopper_product &p = w.product;
  const uint32_t zero = counts_copies<kColumns> ? ptx::unknown_zero() : 0;
  const part at(w, kColumns);
  const ring<kSums, kColumns> slots(w, ptx::shared_address(raw));

  const w_fetcher<kSums, kColumns> fetch_w(slots, w, at, zero);
  // The first copies before what x's want is computed, which the compiler would do first. Not with 64 columns and more:
  // at 8192x28672 and 57344x8192, where the card's power decides, they took 4 % longer by it.
  constexpr bool early = kColumns < 64;
  if constexpr (early) {
    fetch_w(0, 0);
    __syncwarp(); // lanes have different numbers of rows to fetch: without this they stay apart up to the loop
  }
  const x_fetcher<kSums, kColumns> fetch_x(slots, w, at, zero);
  begin_copies(w, at, fetch_w, fetch_x, early);

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const join j = join_of<kColumns>(w, at, slots.begin);
  two_rows rows(p, at.first_row + warp * warp_rows, lane, !slots.blocks_of_k);
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
    // Into the slot of the last step.
    const auto fetch_next = [&] {
      fetch_w(next, step + w.ahead);
      fetch_x(next, step + w.ahead);
      ptx::copy_async_commit();
      if (w.start.let > 0 && step + w.start.let == at.steps)
        ptx::let_next_grid_start();
      __syncwarp(); // lanes have different numbers of rows to fetch; the tensor cores want the warp together
    };
    const uint8_t *scales = raw + (slots.scales_begin - ptx::shared_address(raw)) + slot * slots.scale_bytes;
    run_step<kSums, kColumns>(sum, p, slots.operands(slot, group), at, step, at.first_row + warp * warp_rows + lane / 4,
                              reinterpret_cast<const float *>(scales), fetch_next);
    slot = slot == w.ahead ? 0 : slot + 1;
    next = next == w.ahead ? 0 : next + 1;
  }

  if (j.ranks > 1) {
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
  const uint32_t here = slots.begin + (by_warps<kColumns> ? slot * slots.w_bytes + warp * behind<kColumns>::bytes
                                                          : group * behind<kColumns>::bytes);
  write_eights<kSums, kColumns, T>(p, rows, at, j, sum, run, fetch_x.scales, here, warp, lane);
}

} // namespace hopper
