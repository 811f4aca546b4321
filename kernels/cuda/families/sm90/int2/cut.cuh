// What int2/cut.h says, on the device: from the sums of a cluster to y.
#pragma once

#include "../../../device/number.cuh"
#include "../../../device/ptx.cuh"
#include "cut.h"
#include "layout.h"

// Where the sums of a cluster lie: of each block of rows a list of `parts` addresses a rank, 0 for none.
using int2_parts = uint32_t[INT2_CUT_PARTS_MOST];

// The block's threads write the lists. slots_at: of sums in each block's shared memory.
template <int kGroups, int kThreads>
__device__ inline void int2_list_parts(const int2_cut &cut, uint32_t slots_at, uint32_t slot_bytes, int2_parts &out) {
#pragma unroll 1
  for (uint32_t i = threadIdx.x; i < cut.parts * cut.blocks << cut.split_log2; i += kThreads) {
    const int2_part part = int2_cut_part(&cut, kGroups, i);
    out[i] = part.none ? 0 : ptx::map_to_rank(slots_at + part.slot * slot_bytes, part.rank);
  }
}

// Writes this rank's share of the cluster's y, sums of rows of x by W in slots of [rows][pitch] f32. kHalves: whether
// clusters may have a half block of rows of W; x_scale: of each row, or NULL.
template <int kThreads, int kPitch, bool kHalves, typename Product>
__device__ inline void int2_write_y(const int2_cut &cut, const Product &p, const int2_parts &parts,
                                    const float *x_scale) {
  constexpr uint32_t batch = 8;
  const uint32_t rank = blockIdx.y, rows = cut.blocks * static_cast<uint32_t>(p.m), four = threadIdx.x % 16 * 4;
  const uint32_t last = rows * (rank + 1) >> cut.split_log2;
#pragma unroll 1
  for (uint32_t i = (rows * rank >> cut.split_log2) + threadIdx.x / 16; i < last; i += kThreads / 16) {
    const uint32_t m = i * cut.blocks_inverse >> INT2_CUT_BITS, block = i - m * cut.blocks;
    const uint32_t half = kHalves ? int2_cut_half(&cut, blockIdx.x, block) : 2 * (blockIdx.x * cut.blocks + block);
    const int64_t n = static_cast<int64_t>(half) * INT2_HALF_ROWS + four;
    if (n >= p.n || (kHalves && int2_cut_halved(&cut, block) && four >= INT2_HALF_ROWS))
      continue;
    const uint32_t at = (m * kPitch + four) * 4,
                   count = cut.parts << cut.split_log2, *const list = parts + block * count;
    float sum[4] = {};
#pragma unroll 1
    for (uint32_t part = 0; part < count; part += batch) {
      int4 found[batch];
#pragma unroll
      for (uint32_t j = 0; j < batch; j++) {
        const uint32_t from = part + j < count ? list[part + j] : 0;
        found[j] = from ? ptx::load_cluster_int4(from + at) : make_int4(0, 0, 0, 0);
      }
#pragma unroll
      for (uint32_t j = 0; j < batch; j++) {
        sum[0] += __int_as_float(found[j].x), sum[1] += __int_as_float(found[j].y);
        sum[2] += __int_as_float(found[j].z), sum[3] += __int_as_float(found[j].w);
      }
    }
    const float scale = x_scale ? x_scale[m] : 1.0f;
#pragma unroll
    for (int j = 0; j < 4; j++)
      sum[j] =
          number_scaled(sum[j], 1.0f, scale, p.bias ? number_load_as(p.bias, min(n + j, p.n - 1), p.bias_type) : 0);
    uint8_t *row = static_cast<uint8_t *>(p.y) + m * p.y_stride;
    number_store4_as(row, n, p.n, p.y_type, sum);
  }
}

// Waits for the sums of all ranks. kBarrier: a named one of the block's threads.
template <int kBarrier, int kThreads> __device__ __forceinline__ void int2_await_sums(const int2_cut &cut) {
  if (cut.split_log2 == 0) {
    ptx::named_barrier_sync(kBarrier, kThreads);
  } else {
    ptx::cluster_arrive();
    ptx::cluster_wait();
  }
}

// Nobody leaves while another reads its sums.
__device__ __forceinline__ void int2_await_readers(const int2_cut &cut) {
  if (cut.split_log2 > 0) {
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();
  }
}
