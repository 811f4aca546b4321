// How rows of W and x come into shared memory, and where they lie there.
#pragma once

#include "ptx.cuh"

namespace hopper {

constexpr int chunk_bytes = 128;            // of K: one row of the tensor cores' swizzled form
constexpr int step_bytes = 2 * chunk_bytes; // of K that arrive together
constexpr int group_rows = 64;              // of W a warpgroup
constexpr int row_lanes = step_bytes / 16;  // threads that fetch a row, 16 bytes each

// One thread's part of fetching `rows` rows into two swizzled chunks, `chunk` bytes apart. Rows are read where they
// lie, 256 bytes at a time: contiguous copies were no faster.
template <int kThreads> struct row_copies {
  const uint8_t *from;
  int64_t hop;       // to this thread's next row
  uint32_t to;       // offset in a slot
  int count, k_left; // rows of this thread; bytes of K from its column on

  __device__ row_copies(const uint8_t *base, int64_t stride, int rows, int k, int first_step, uint32_t chunk) {
    const int lane = threadIdx.x % row_lanes, row = threadIdx.x / row_lanes;
    constexpr int rows_at_once = kThreads / row_lanes;
    from = base + row * stride + static_cast<int64_t>(first_step) * step_bytes + lane * 16;
    hop = stride * rows_at_once;
    to = lane / 8 * chunk + row * chunk_bytes + ((lane % 8) ^ (row % 8)) * 16;
    count = row < rows ? (rows - row + rows_at_once - 1) / rows_at_once : 0;
    k_left = k - first_step * step_bytes - lane * 16;
  }

  // Zeros behind the end of K.
  __device__ void fetch(uint32_t slot, int step) const {
    const uint32_t bytes = step * step_bytes < k_left ? 16 : 0;
    const uint8_t *at = from + (bytes ? static_cast<int64_t>(step) * step_bytes : 0);
    uint32_t into = slot + to;
#pragma unroll 4
    for (int i = 0; i < count; i++, at += hop, into += kThreads / row_lanes * chunk_bytes)
      ptx::copy_async_16(into, at, bytes);
  }
};

// The scales of x for the two blocks of K in a step: two rows of kColumns values, from column `first_m` on.
template <int kColumns>
__device__ inline void fetch_block_scales(uint32_t slot, const float *scales, int64_t stride, int64_t first_m, int step,
                                          int blocks) {
  constexpr int fours = kColumns / 4;
  if (threadIdx.x >= 2 * fours)
    return;
  const int block = 2 * step + threadIdx.x / fours;
  const int64_t column = first_m + threadIdx.x % fours * 4;
  const bool inside = block < blocks && column < stride;
  ptx::copy_async_16(slot + threadIdx.x * 16, inside ? scales + block * stride + column : scales, inside ? 16 : 0);
}

} // namespace hopper
