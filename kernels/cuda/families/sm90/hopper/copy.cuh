// How rows of W and x come into shared memory, and where they lie there.
#pragma once

#include "../../../device/ptx.cuh"
#include "work.cuh"

namespace hopper {

constexpr int row_lanes = step_bytes / 16; // threads that fetch a row, 16 bytes each

// One thread's part of fetching `rows` rows into two swizzled chunks, `chunk` bytes apart. Rows are read where they
// lie, 256 bytes at a time: contiguous copies were no faster.
struct row_copies {
  const uint8_t *from;
  uint32_t hop;        // to this thread's next row
  uint32_t to, in_hop; // offset in a slot, and to that of its next row
  int first, rows;     // its first row, and those that there are
  int count;           // of its rows
  int k_left;          // bytes of K from its column on

  // `matrix`: its rows are `stride` bytes apart, of which `k` from K's step `first_step` on. `inverse`: work's. `zero`:
  // ptx::unknown_zero's, so that all this stays in registers and is not computed again in the loop, where every
  // instruction counts.
  __device__ row_copies(const void *matrix, int64_t row_bytes, int first_row, int rows_there, int64_t k, int first_step,
                        uint32_t chunk, int inverse, uint32_t zero) {
    const uint32_t lane = threadIdx.x % row_lanes, apart = blockDim.x / row_lanes,
                   stride = static_cast<uint32_t>(row_bytes);
    first = threadIdx.x / row_lanes;
    rows = rows_there;
    const uint32_t column = first_step * step_bytes + lane * 16 + zero;
    from = static_cast<const uint8_t *>(matrix) + static_cast<uint64_t>(first_row + first) * stride + column;
    hop = stride * apart + zero;
    to = lane / 8 * chunk + first * chunk_bytes + ((lane % 8) ^ (first % 8)) * 16 + zero;
    in_hop = apart * chunk_bytes + zero;
    count = ((rows - first + apart - 1) * inverse >> 16) + zero;
    k_left = static_cast<int>(k) - column;
  }

  // Zeros behind the end of K. `copy`: of 16 bytes; kRows: there are no more. Counted, no row is asked whether it is
  // there: a warp that is alone takes 4 to 6 cycles for an instruction, and four copies at a time are 30 rather than
  // 44. Where W is all there is to wait for, one by one is as fast, and up to 0.3 us faster in a row.
  template <int kRows, bool kCounted, typename Copy>
  __device__ void fetch(uint32_t slot, int step, const Copy &copy) const {
    const uint32_t offset = step * step_bytes;
    const bool inside = static_cast<int>(offset) < k_left;
    const uint32_t bytes = inside ? 16 : 0;
    const uint8_t *at = from + (inside ? offset : 0);
    uint32_t into = slot + to;
    if constexpr (!kCounted) {
#pragma unroll 4
      for (int row = first; row < rows; row += blockDim.x / row_lanes, at += hop, into += in_hop)
        copy(into, at, bytes);
      return;
    }
    ptx::keep(at);
    ptx::keep(into);
    int left = count;
    if constexpr (kRows > 24) {
#pragma unroll 1
      for (; left >= 4; left -= 4) {
        ptx::keep(into);
        copy(into, at, bytes);
        copy(into + in_hop, at + hop, bytes);
        copy(into + 2 * in_hop, at + uint64_t(2) * hop, bytes);
        copy(into + 3 * in_hop, at + uint64_t(3) * hop, bytes);
        into += 4 * in_hop;
        at += uint64_t(4) * hop;
      }
    }
    if constexpr (kRows > 8) {
      if (left & 2) {
        copy(into, at, bytes);
        copy(into + in_hop, at + hop, bytes);
        into += 2 * in_hop;
        at += uint64_t(2) * hop;
      }
    }
    if (left & 1)
      copy(into, at, bytes);
  }
};

// The scales of kColumns rows of x from row `first_m` on, of which there are `m`; NULL: 1.
template <int kColumns>
__device__ inline void fetch_x_scales(uint32_t to, const float *scales, int64_t first_m, int m) {
  const int row = threadIdx.x;
  if (row >= kColumns)
    return;
  if (scales)
    ptx::copy_async_4(to + row * sizeof(float), scales + first_m + (row < m ? row : 0), row < m ? 4 : 0);
  else
    ptx::store_shared(to + row * sizeof(float), __float_as_uint(1.0f));
}

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
