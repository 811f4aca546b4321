// From the sums of fp8_many/kernel.cuh to y, where a cluster has a tile, too.
#pragma once

#include "../../../device/span.cuh"
#include "../hopper/output.cuh"
#include "share.cuh"

namespace fp8_many {

__device__ inline void group_sync(int group) {
  ptx::named_barrier_sync(1 + group, 128);
}

// ---- sums of a tile that a cluster has, whose blocks have parts of its K

constexpr int eight_bytes = 128 * 16; // of a warpgroup's eight columns

// How many times eight columns a block of so many adds up, at most.
template <int kSplit> constexpr int eights_of_block = (eights + kSplit - 1) / kSplit;

template <int kSplit> __device__ inline span span_of(int rank) {
  constexpr int each = eights_of_block<kSplit>;
  return {min(each * rank, eights), min(each * (rank + 1), eights)};
}

// Bytes of sums that come to a block.
template <int kSplit> __device__ inline uint32_t joined_bytes(int rank) {
  const span own = span_of<kSplit>(rank);
  return (kSplit - 1) * groups * (own.end - own.begin) * eight_bytes;
}

// Sends the others theirs, and makes of the first sums the whole ones of this block's columns. `here`: where sums come
// to, [block that sends][warpgroup][eight columns], each as its threads hold them.
template <int kSplit>
__device__ inline void join(int rank, int group, float (&sum)[4 * eights], uint32_t here, uint32_t barrier) {
  constexpr int each = eights_of_block<kSplit>;
  const uint32_t place = threadIdx.x % 128 * 16;
  const auto from = [&](int sender) { return here + (sender * groups + group) * each * eight_bytes + place; };
  ptx::cluster_wait(); // all blocks have begun
#pragma unroll
  for (int owner = 0; owner < kSplit; owner++) {
    if (owner == rank)
      continue;
    const uint32_t to = ptx::map_to_rank(from(rank < owner ? rank : rank - 1), owner);
    const uint32_t joined = ptx::map_to_rank(barrier, owner);
#pragma unroll
    for (int t = owner * each; t < (owner + 1) * each && t < eights; t++)
      ptx::store_async(to + (t - owner * each) * eight_bytes,
                       make_int4(__float_as_int(sum[4 * t]), __float_as_int(sum[4 * t + 1]),
                                 __float_as_int(sum[4 * t + 2]), __float_as_int(sum[4 * t + 3])),
                       joined);
  }
  const span own = span_of<kSplit>(rank);
  move_down<eights / 2>(sum, own.begin);
  ptx::barrier_wait(barrier, 0);
#pragma unroll
  for (int sender = 0; sender < kSplit - 1; sender++) {
#pragma unroll
    for (int t = 0; t < each; t++) {
      if (own.begin + t >= own.end)
        continue;
      const int4 quad = ptx::load_shared_int4(from(sender) + t * eight_bytes);
      sum[4 * t] += __int_as_float(quad.x), sum[4 * t + 1] += __int_as_float(quad.y);
      sum[4 * t + 2] += __int_as_float(quad.z), sum[4 * t + 3] += __int_as_float(quad.w);
    }
  }
}

// ---- sums to y

// What a thread needs to make y of a tile's sums, asked for before the products: scales of x by thread, those of W and
// the bias of the two rows of W that a thread has of each 64.
struct factors {
  float x_scale, w_scale[2], bias[2];

  __device__ factors(const hopper_product &p, int64_t first_m, int64_t first_n) {
    const int thread = threadIdx.x % 128;
    x_scale = p.x_scale ? p.x_scale[min(first_m + thread, p.m - 1)] : 1.0f;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int64_t n = min(first_n + thread / 32 * 16 + thread % 32 / 4 + 8 * i, p.n - 1);
      w_scale[i] = p.w_scale ? p.w_scale[n] : 1.0f;
      bias[i] = p.bias ? number_load_as(p.bias, n, p.bias_type) : 0.0f;
    }
  }
};

__device__ inline uint32_t pair_of(float low, float high, __half) {
  const __half2 pair = __floats2half2_rn(low, high);
  return reinterpret_cast<const uint32_t &>(pair);
}

__device__ inline uint32_t pair_of(float low, float high, __nv_bfloat16) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t &>(pair);
}

// 16 bytes of a row of y from column n on, as far as it goes.
template <typename Y> __device__ inline void store_vector(uint8_t *row, int64_t n, int64_t end, uint4 vector) {
  constexpr int count = 16 / sizeof(Y);
  Y *const y = reinterpret_cast<Y *>(row) + n;
  if (n + count <= end && reinterpret_cast<uintptr_t>(y) % 16 == 0) {
    *reinterpret_cast<uint4 *>(y) = vector;
    return;
  }
  const Y *const elements = reinterpret_cast<const Y *>(&vector);
#pragma unroll
  for (int i = 0; i < count; i++)
    if (n + i < end)
      y[i] = elements[i];
}

// Sixteen columns of sums, scaled, to where they lie in a warpgroup's 64 rows of y; `to`: of the first column.
template <typename Y>
__device__ inline void put_down(const float *sum, const factors &f, const float2 *x_scale, uint32_t to) {
  constexpr int pitch = out_pitch<sizeof(Y)>;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  float value[8];
#pragma unroll
  for (int i = 0; i < 8; i++)
    value[i] =
        number_scaled(sum[i], f.w_scale[i / 2 % 2], i % 2 ? x_scale[i / 4].y : x_scale[i / 4].x, f.bias[i / 2 % 2]);
  if constexpr (sizeof(Y) == 2) {
    const uint32_t pairs[4] = {pair_of(value[0], value[1], Y()), pair_of(value[2], value[3], Y()),
                               pair_of(value[4], value[5], Y()), pair_of(value[6], value[7], Y())};
    ptx::store_four_matrices_transposed(to + (lane / 16 * 8 + lane % 8) * pitch + warp * 32 + lane / 8 % 2 * 16, pairs);
  } else {
    to += lane % 4 * 2 * pitch + (warp * 16 + lane / 4) * 4;
#pragma unroll
    for (int i = 0; i < 8; i++)
      ptx::store_shared(to + (i / 4 * 8 + i % 2) * pitch + i / 2 % 2 * 32, __float_as_uint(value[i]));
  }
}

// Rows of y that a thread writes 16 bytes of.
struct run_of_y {
  int64_t n;  // the first column
  bool whole; // 16 bytes of every row, aligned

  template <typename Y> static __device__ run_of_y of(const hopper_product &p, int64_t n) {
    const bool aligned =
        ((reinterpret_cast<uintptr_t>(p.y) + n * sizeof(Y)) | static_cast<uintptr_t>(p.y_stride)) % 16 == 0;
    return {n, !p.y_rows && aligned && n + static_cast<int64_t>(16 / sizeof(Y)) <= p.n};
  }
};

// Columns `own` of 64 rows of W from first_n on, of which `sum` begins with the first; through shared memory, so that
// whole runs of y are written.
template <typename Y, int kOwn, int kRows, int kCount>
__device__ inline void write_y(const work &w, shared<kRows> &s, int64_t first_m, int64_t first_n, int group,
                               const float (&sum)[kCount], const factors &f, span own) {
  constexpr int pitch = out_pitch<sizeof(Y)>, per_lane = 16 / sizeof(Y), lanes = 64 / per_lane, apart = 128 / lanes;
  constexpr int each = out_rows<sizeof(Y)> / 8 < kOwn ? out_rows<sizeof(Y)> / 8 : kOwn;
  static_assert(kOwn % 2 == 0 && each % 2 == 0, "whole pairs of eights");
  const hopper_product &p = w.product;
  const int thread = threadIdx.x % 128, row = thread / lanes;
  const uint32_t out = ptx::shared_address(s.out[group]), from = out + row * pitch + thread % lanes * 16;
  const run_of_y run = run_of_y::of<Y>(p, first_n + thread % lanes * per_lane);
  s.x_scale[group][thread] = f.x_scale;
  group_sync(group);
  float2 x_scale[kOwn]; // loaded together: what puts sums down waits for none of them
#pragma unroll
  for (int t = 0; t < kOwn; t++)
    x_scale[t] =
        *reinterpret_cast<const float2 *>(&s.x_scale[group][8 * min(own.begin + t, eights - 1) + threadIdx.x % 4 * 2]);
#pragma unroll
  for (int first = 0; first < kOwn; first += each) {
    const int column = 8 * (own.begin + first), columns_left = min(w.plan.columns, 8 * own.end) - column;
    const int64_t m = first_m + column;
    const int rows = static_cast<int>(min(static_cast<int64_t>(min(8 * each, columns_left)), p.m - m));
    if (rows <= 0)
      break;
    if (first > 0)
      group_sync(group); // those before have left shared memory
#pragma unroll
    for (int t = 0; t < each && first + t < kOwn; t += 2)
      put_down<Y>(sum + 4 * (first + t), f, x_scale + first + t, out + t * 8 * pitch);
    group_sync(group);
    if (run.whole) {
      uint8_t *const to = static_cast<uint8_t *>(p.y) + (m + row) * p.y_stride + run.n * sizeof(Y);
      const int64_t hop = apart * p.y_stride;
#pragma unroll
      for (int i = 0; i < each * 8 / apart; i++)
        if (row + i * apart < rows)
          *reinterpret_cast<int4 *>(to + i * hop) = ptx::load_shared_int4(from + i * apart * pitch);
    } else if (run.n < p.n) {
#pragma unroll 1
      for (int i = row; i < rows; i += apart)
        store_vector<Y>(hopper::row_of_y(p, m + i), run.n, p.n, ptx::load_shared_uint4(from + (i - row) * pitch));
    }
  }
  group_sync(group); // and the scales of x are free
}

} // namespace fp8_many
