// Sorted rows of x to what the sparse matrix instruction takes: int2_few/x.cuh,
// in memory.
#pragma once

#include "../int2_few/x.cuh"
#include "share.cuh"

namespace grouped_int2 {

constexpr int making_warps = 4, groups_at_once = 4; // of a warp

// Four groups of a row a warp.
template <typename X, bool kSplits>
__global__ void __launch_bounds__(32 * making_warps, 4) make(const __grid_constant__ work w) {
  using part = int2_few::x_part<X, kSplits>;
  constexpr int columns = kSplits ? 2 : 1;
  __shared__ alignas(128) uint8_t room[making_warps][columns][groups_at_once][GROUPED_INT2_X_BYTES];
  ptx::wait_for_previous_grid();
  ptx::let_next_grid_start();
  const grouped_int2_product &p = w.product;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int group = (blockIdx.x * making_warps + warp) * groups_at_once,
            mine = min(group + lane / 8, w.plan.groups - 1);
  const int64_t row = p.first_row + blockIdx.y, at = blockIdx.y;
  if (row >= p.route.counts->rows || group >= w.plan.groups)
    return;
  part numbers;
  numbers.load(static_cast<const uint8_t *>(p.x) + row * p.x_stride + (mine * GEMM_GROUP + lane % 8 * 16) * sizeof(X));
  // Columns of the instruction lie apart by whose number is odd: of rows that
  // are not split the sorted row's.
  const int first = kSplits ? 0 : static_cast<int>(row % 2);
  const uint32_t to = ptx::shared_address(room[warp][0][lane / 8]),
                 rest = ptx::shared_address(room[warp][columns - 1][lane / 8]);
  const float by = numbers.store_scaled(to + part::place(lane, first), rest + part::place(lane, 1));
  __syncwarp();
  const made out(w);
  if (lane % 8 == 0 && group + lane / 8 < w.plan.groups)
    out.multipliers[at * w.plan.multipliers + mine] = by;
  uint8_t *const x = out.x + at * made_row(w.plan.groups, kSplits) + group * GROUPED_INT2_X_BYTES;
  const int bytes = min(groups_at_once, w.plan.groups - group) * GROUPED_INT2_X_BYTES;
#pragma unroll
  for (int c = 0; c < columns; c++)
    for (int i = lane * 16; i < bytes; i += 32 * 16)
      *reinterpret_cast<uint4 *>(x + c * w.plan.groups * GROUPED_INT2_X_BYTES + i) =
          *reinterpret_cast<const uint4 *>(&room[warp][c][0][0] + i);
}

} // namespace grouped_int2
