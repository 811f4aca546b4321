// The kernel of hopper_config.h. Copies run `ahead` steps before the tensor cores, in a ring of one slot more.
#pragma once

#include "hopper_epilogue.cuh"
#include "hopper_multiply.cuh"

namespace hopper {

// A launch: the product, and how it is cut up.
struct work {
  hopper_product product;
  int rows;                // of W a block
  int steps, longer;       // of K a rank; so many ranks, the first, have one more
  int fours, fours_longer; // of columns of y a rank, the same way
  int fours_shift;         // threads that write a row of y, a power of two
  int column_tiles;        // of x; the block index runs through them first, so that W is read from memory once
  bool dependent;
};

// What of K, W and x a block has.
struct part {
  int64_t first_row, first_m; // of W and x
  int rows, m;                // that there are
  int first_step, steps;

  // Divisions are long; most launches need none.
  __device__ part(const work &w, int columns) {
    const int rank = static_cast<int>(blockIdx.y), block = static_cast<int>(blockIdx.x);
    const int tile = w.column_tiles == 1 ? block : block / w.column_tiles;
    first_row = static_cast<int64_t>(tile) * w.rows;
    first_m = static_cast<int64_t>(block - tile * w.column_tiles) * columns;
    rows = static_cast<int>(min(static_cast<int64_t>(w.rows), w.product.n - first_row));
    m = static_cast<int>(min(static_cast<int64_t>(columns), w.product.m - first_m));
    first_step = w.steps * rank + min(rank, w.longer);
    steps = w.steps + (rank < w.longer ? 1 : 0);
  }
};

template <int kColumns>
__device__ inline void fetch_row_scales(const hopper_product &p, const part &at, float *scales) {
  static_assert(kColumns <= 128, "a thread a scale");
  if (threadIdx.x >= kColumns)
    return;
  if (p.x_scale && static_cast<int>(threadIdx.x) < at.m)
    ptx::copy_async_4(ptx::shared_address(scales + threadIdx.x), p.x_scale + at.first_m + threadIdx.x);
  else
    scales[threadIdx.x] = 1.0f;
}

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

// One warp a scheduler runs an instruction in 4 to 6 cycles, so what stands before the first copies and behind the last
// products counts: no divisions, and nothing is looked at before the first steps of W and x are under way.
template <sums kSums, int kColumns, int kAhead>
__global__ void __launch_bounds__(128 * groups_most(kSums, kColumns)) run(const __grid_constant__ work w) {
  using T = typename sum_of<kSums>::type;
  constexpr int slots = kAhead + 1;
  constexpr bool blocks_of_k = kSums == sums::block_scaled;
  constexpr uint32_t x_chunk = kColumns * chunk_bytes, x_bytes = 2 * x_chunk,
                     scale_bytes = 2 * kColumns * sizeof(float);
  extern __shared__ uint8_t raw[];
  __shared__ float row_scales[kColumns];
  const hopper_product &p = w.product;
  const part at(w, kColumns);
  const uint32_t w_chunk = w.rows * chunk_bytes, w_bytes = 2 * w_chunk;
  const uint32_t begin = (ptx::shared_address(raw) + 1023) & ~1023u; // the swizzle counts from there
  const uint32_t x_begin = begin + slots * w_bytes, scales_begin = x_begin + slots * x_bytes;

  const row_copies w_copies(static_cast<const uint8_t *>(p.w) + at.first_row * p.w_stride, p.w_stride, at.rows,
                            static_cast<int>(p.k), at.first_step, w_chunk);
  const row_copies x_copies(static_cast<const uint8_t *>(p.x) + at.first_m * p.x_stride, p.x_stride, at.m,
                            static_cast<int>(p.k), at.first_step, x_chunk);
  const uint64_t once = ptx::policy_evict_first();
  const auto fetch_w = [&](int slot, int step) {
    if (step < at.steps)
      w_copies.fetch(begin + slot * w_bytes, step, [&](uint32_t to, const uint8_t *from, uint32_t bytes) {
        ptx::copy_async_16_once(to, from, bytes, once);
      });
  };
  const auto fetch_x = [&](int slot, int step) {
    if (step >= at.steps)
      return;
    x_copies.fetch(x_begin + slot * x_bytes, step, ptx::copy_async_16);
    if (blocks_of_k)
      fetch_block_scales<kColumns>(scales_begin + slot * scale_bytes, p.x_scale, p.x_scale_stride, at.first_m,
                                   at.first_step + step, static_cast<int>(p.k / GEMM_GROUP));
  };

  if (w.dependent) {
#pragma unroll 1
    for (int i = 0; i < kAhead; i++)
      fetch_w(i, i);
    ptx::copy_async_commit();
    ptx::let_next_grid_start();
    ptx::wait_for_previous_grid();
  }
#pragma unroll 1
  for (int i = 0; i < kAhead; i++) {
    if (!w.dependent)
      fetch_w(i, i);
    fetch_x(i, i);
    ptx::copy_async_commit();
  }
  if (!blocks_of_k)
    fetch_row_scales<kColumns>(p, at, row_scales);
  const int ranks = static_cast<int>(gridDim.y), rank = static_cast<int>(blockIdx.y), pitch = sums_pitch();
  four four(p, at.first_row, w.fours * rank + min(rank, w.fours_longer), w.fours + (rank < w.fours_longer ? 1 : 0),
            w.fours_shift);
  four.fetch(p, !blocks_of_k);

  T sum[kColumns / 2] = {};
  const int group = threadIdx.x / 128;
  int slot = 0, next = kAhead;
  for (int step = 0; step < at.steps; step++) {
    ptx::copy_async_wait<kAhead - 1>();
    ptx::fence_async_shared();
    __syncthreads();
    fetch_w(next, step + kAhead);
    fetch_x(next, step + kAhead);
    ptx::copy_async_commit();
    __syncwarp(); // lanes have different numbers of rows to fetch; the tensor cores want the warp together
    const step_operands operands = {begin + slot * w_bytes + group * group_rows * chunk_bytes, w_chunk,
                                    x_begin + slot * x_bytes, x_chunk};
    if constexpr (kSums == sums::integers) {
      multiply_step(sum, operands, step == 0);
    } else if constexpr (kSums == sums::every_128) {
      multiply_parts<chunk_instructions, step_instructions>(sum, operands, 0);
    } else if constexpr (kSums == sums::every_32) {
      multiply_parts<1, step_instructions>(sum, operands, 0);
    } else {
      const float *x_scale =
          reinterpret_cast<const float *>(raw + (scales_begin - ptx::shared_address(raw)) + slot * scale_bytes);
      const int64_t row = at.first_row + group * group_rows + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
      for (int chunk = 0; chunk < 2; chunk++) {
        float w_scale[2];
        load_block_scales(p, row, 2 * (at.first_step + step) + chunk, w_scale);
        multiply_block(sum, operands, chunk, w_scale, x_scale + chunk * kColumns);
      }
    }
    slot = slot == kAhead ? 0 : slot + 1;
    next = next == kAhead ? 0 : next + 1;
  }
  ptx::copy_async_wait_all(); // the scales, too, which are in no group where a rank has no step
  if (blocks_of_k && threadIdx.x < kColumns)
    row_scales[threadIdx.x] = 1.0f;
  __syncthreads(); // the ring has been read: sums go over it

  T *const own = reinterpret_cast<T *>(raw + (begin - ptx::shared_address(raw)));
  store_sums(sum, own + group * group_rows, pitch, static_cast<int>(threadIdx.x % 128));
  if (ranks > 1) {
    ptx::cluster_arrive();
    ptx::cluster_wait();
  } else {
    __syncthreads();
  }
  write_tile<kColumns, T>(p, four, at.first_m, at.m, begin, pitch, row_scales, ranks);
  if (ranks > 1) { // nobody leaves while another reads its sums; y need not have arrived
    __syncwarp();
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();
  }
}

} // namespace hopper
