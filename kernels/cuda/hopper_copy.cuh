// How rows of W and x come into shared memory, and where they lie there.
#pragma once

#include "hopper_work.cuh"
#include "ptx.cuh"

namespace hopper {

constexpr int row_lanes = step_bytes / 16; // threads that fetch a row, 16 bytes each

// One thread's part of fetching `rows` rows into two swizzled chunks, `chunk` bytes apart. Rows are read where they
// lie, 256 bytes at a time: contiguous copies were no faster.
struct row_copies {
  const uint8_t *from;
  int64_t hop;            // to this thread's next row
  uint32_t to;            // offset in a slot
  int first, rows, apart; // this thread's first row, those that there are, and its next one
  int k_left;             // bytes of K from its column on

  __device__ row_copies(const uint8_t *base, int64_t stride, int rows_there, int k, int first_step, uint32_t chunk) {
    const int lane = threadIdx.x % row_lanes;
    first = threadIdx.x / row_lanes;
    apart = blockDim.x / row_lanes;
    rows = rows_there;
    from = base + first * stride + static_cast<int64_t>(first_step) * step_bytes + lane * 16;
    hop = stride * apart;
    to = lane / 8 * chunk + first * chunk_bytes + ((lane % 8) ^ (first % 8)) * 16;
    k_left = k - first_step * step_bytes - lane * 16;
  }

  // Zeros behind the end of K. `copy`: of 16 bytes.
  template <typename Copy> __device__ void fetch(uint32_t slot, int step, const Copy &copy) const {
    const uint32_t bytes = step * step_bytes < k_left ? 16 : 0;
    const uint8_t *at = from + (bytes ? static_cast<int64_t>(step) * step_bytes : 0);
    uint32_t into = slot + to;
#pragma unroll 4
    for (int row = first; row < rows; row += apart, at += hop, into += apart * chunk_bytes)
      copy(into, at, bytes);
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
