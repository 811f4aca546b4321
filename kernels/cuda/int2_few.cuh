// Kernel of int2_few.h.
//
// A pair of warps takes a tile of 64 rows of W x 128 of K at a time, 32 rows each, through a ring that only the lanes
// which read it fill: no thread waits for another. A code c becomes the number c + 2^i by one instruction, a
// mask and an exponent; i differs by the place of the code in its word (int2_layout.h), and minus the sum of
// (2^i + 1) x, which sums start from, leaves c - 1. 2^i is at most 256 (f16) and 128 (bf16): f32 has the bits.
#pragma once

#include "int2_codes.cuh"
#include "int2_few.h"
#include "int2_layout.h"
#include "number.cuh"
#include "ptx.cuh"

namespace int2_few {

constexpr int pairs = INT2_FEW_PAIRS, threads = 64 * pairs, warps = 2 * pairs;
constexpr int warp_bytes = INT2_TILE_BYTES / 2, ring_bytes = pairs * INT2_TILE_BYTES;
constexpr int warp_scales = 2 * INT2_UNIT_BYTES; // behind the codes of a warp's two units
constexpr int pitch = INT2_BLOCK_ROWS + 4;

struct work {
  int2_few_product product;
  int2_few_plan plan;
  int blocks;
};

// ---- x

// Where the 16 bytes at `chunk` of a group of a column lie: rows of 128 bytes, 64 of K, swizzled, those of all columns
// together.
template <int kColumns> __device__ inline uint32_t place_of(uint32_t at, int group, int column, int chunk) {
  return at + ((2 * group + chunk / 8) * kColumns + column) * 128 + ((chunk % 8) ^ (column % 8)) * 16;
}

// f32 in two parts of bf16, the first cut off, so that it does not overflow: 2^-16 of the number is lost at most.
template <int kColumns>
__device__ inline void split_x(uint32_t at, const float *from, int group, int column, int chunk) {
  uint32_t upper[4], lower[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float2 value = __ldg(reinterpret_cast<const float2 *>(from) + i);
    const uint32_t low = __float_as_uint(value.x) & 0xffff0000, high = __float_as_uint(value.y) & 0xffff0000;
    upper[i] = low >> 16 | high;
    lower[i] = int2_pack(value.x - __uint_as_float(low), value.y - __uint_as_float(high));
  }
  ptx::store_shared_int4(place_of<kColumns>(at, group, column, chunk), upper);
  ptx::store_shared_int4(place_of<kColumns>(at, group, column + 1, chunk), lower);
}

// The block's part of x. A warp takes two groups of a row at a time.
template <typename X, int kColumns>
__device__ inline void fetch_x(const int2_few_product &p, int first_tile, int length, uint32_t at) {
  const int lane = threadIdx.x % 32, chunk = lane % 16, m = static_cast<int>(p.m);
  const uint8_t *const from =
      static_cast<const uint8_t *>(p.x) + (static_cast<int64_t>(first_tile) * GEMM_GROUP + chunk * 8) * sizeof(X);
#pragma unroll 1
  for (int couple = threadIdx.x / 32, row = 0; row < m; couple += warps) {
    while (2 * couple >= length) {
      couple -= (length + 1) / 2;
      row++;
    }
    const int group = 2 * couple + lane / 16;
    if (row >= m || group >= length)
      continue;
    const uint8_t *const here = from + row * p.x_stride + group * (GEMM_GROUP * sizeof(X));
    if constexpr (sizeof(X) == 4)
      split_x<kColumns>(at, reinterpret_cast<const float *>(here), group, 2 * row, chunk);
    else
      ptx::copy_async_16(place_of<kColumns>(at, group, row, chunk), here, 16);
  }
}

// ---- products

// x of a group as the instruction wants it.
template <int kEights> struct operand { uint32_t x[kEights][8][2]; };

// Where a lane's part of it begins, for even and odd steps of 32 of K.
struct operand_place {
  uint32_t even, odd;
};

__device__ inline operand_place operand_at(uint32_t x, int lane) {
  const uint32_t row = x + lane % 8 * 128;
  return {row + ((lane / 8) ^ (lane % 8)) * 16, row + ((4 + lane / 8) ^ (lane % 8)) * 16};
}

template <int kEights> __device__ inline void load_operand(operand<kEights> &out, const operand_place &at, int group) {
  constexpr int columns = 8 * kEights;
#pragma unroll
  for (int t = 0; t < kEights; t++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      uint32_t matrices[4];
      ptx::load_matrices(matrices,
                         (i % 2 ? at.odd : at.even) + group * (columns * 256) + t * 1024 + i / 2 * columns * 128);
      out.x[t][2 * i][0] = matrices[0];
      out.x[t][2 * i][1] = matrices[1];
      out.x[t][2 * i + 1][0] = matrices[2];
      out.x[t][2 * i + 1][1] = matrices[3];
    }
  }
}

// Where the sums of a group start from: minus the sum of (offset + 1) x, [group][column].
template <typename X, int kEights>
__device__ inline void store_starts(const operand_place &x, float *starts, int length, int warp, int lane) {
  constexpr int columns = 8 * kEights;
#pragma unroll 1
  for (int group = warp; group < length; group += warps) {
    operand<kEights> b;
    load_operand<kEights>(b, x, group);
#pragma unroll
    for (int t = 0; t < kEights; t++) {
      float sum[2][4] = {};
#pragma unroll
      for (int s = 0; s < 8; s++) {
        const uint32_t left = int2_codes<X>::constant(-1.0f - int2_codes<X>::offset(s % 4));
        const uint32_t right = int2_codes<X>::constant(-1.0f - int2_codes<X>::offset(s % 4 + 4));
        int2_codes<X>::multiply(sum[s % 2], {left, left, right, right}, b.x[t][s], sum[s % 2]);
      }
      if (lane < 4)
        *reinterpret_cast<float2 *>(starts + group * columns + 8 * t + 2 * lane) =
            make_float2(sum[0][0] + sum[1][0], sum[0][1] + sum[1][1]);
    }
  }
}

// What the sums of 8 columns start from, for each of a thread's four.
template <int kEights> struct starting { float sums[kEights][4]; };

// 16 rows of W x a tile's K, added to the sums.
template <typename X, int kEights>
__device__ inline void multiply_unit(float (&sum)[kEights][4], const int4 &words, uint32_t scales,
                                     const operand<kEights> &b, const starting<kEights> &start) {
  float part[kEights][4];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const auto upper = int2_codes<X>::view(half ? words.z : words.x),
               lower = int2_codes<X>::view(half ? words.w : words.y);
#pragma unroll
    for (int s = 0; s < 4; s++) {
      const uint32_t a[4] = {int2_codes<X>::number(upper, s), int2_codes<X>::number(lower, s),
                             int2_codes<X>::number(upper, s + 4), int2_codes<X>::number(lower, s + 4)};
#pragma unroll
      for (int t = 0; t < kEights; t++)
        int2_codes<X>::multiply(part[t], a, b.x[t][4 * half + s],
                                half + s == 0 ? start.sums[t] : static_cast<const float(&)[4]>(part[t]));
    }
  }
  const float2 row = __half22float2(reinterpret_cast<const __half2 &>(scales));
#pragma unroll
  for (int t = 0; t < kEights; t++) {
#pragma unroll
    for (int i = 0; i < 4; i++)
      sum[t][i] = fmaf(part[t][i], i < 2 ? row.x : row.y, sum[t][i]);
  }
}

// ---- sums to y

template <int kEights, bool kSplit>
__device__ inline void store_sums(float (&sum)[2][kEights][4], float *slot, int half, int lane) {
#pragma unroll
  for (int u = 0; u < 2; u++) {
#pragma unroll
    for (int t = 0; t < kEights; t++) {
      float *at = slot + 32 * half + 16 * u + lane / 4, *d = sum[u][t];
      if constexpr (kSplit) {
        at += (4 * t + lane % 4) * pitch;
        at[0] = d[0] + d[1];
        at[8] = d[2] + d[3];
      } else {
        at += (8 * t + lane % 4 * 2) * pitch;
        at[0] = d[0];
        at[pitch] = d[1];
        at[8] = d[2];
        at[pitch + 8] = d[3];
      }
#pragma unroll
      for (int i = 0; i < 4; i++)
        d[i] = 0.0f;
    }
  }
}

// This block's share of the cluster's y. `parts`: the sums of the cluster's blocks of rows, by address; those of the
// b-th are first_part[b] to first_part[b + 1].
template <int kColumns>
__device__ inline void write_y(const work &w, const uint32_t *parts, const int16_t *first_part, int rank, int ranks) {
  constexpr int batch = 4;
  const int2_few_product &p = w.product;
  const int rows = w.blocks * static_cast<int>(p.m), four = threadIdx.x % 16 * 4;
  for (int i = rows * rank / ranks + threadIdx.x / 16; i < rows * (rank + 1) / ranks; i += threads / 16) {
    const int m = i / w.blocks, block = i % w.blocks;
    const int64_t n = (static_cast<int64_t>(blockIdx.x) * w.blocks + block) * INT2_BLOCK_ROWS + four;
    if (n >= p.n)
      continue;
    const uint32_t at = (m * pitch + four) * 4;
    const int end = first_part[block + 1];
    float sum[4] = {};
#pragma unroll 1
    for (int part = first_part[block]; part < end; part += batch) {
      int4 found[batch];
#pragma unroll
      for (int j = 0; j < batch; j++)
        found[j] = ptx::load_cluster_int4(parts[min(part + j, end - 1)] + at);
#pragma unroll
      for (int j = 0; j < batch; j++) {
        if (part + j < end) {
          sum[0] += __int_as_float(found[j].x);
          sum[1] += __int_as_float(found[j].y);
          sum[2] += __int_as_float(found[j].z);
          sum[3] += __int_as_float(found[j].w);
        }
      }
    }
    if (p.bias)
#pragma unroll
      for (int j = 0; j < 4; j++)
        sum[j] += number_load_as(p.bias, min(n + j, p.n - 1), p.bias_type);
    uint8_t *row = static_cast<uint8_t *>(p.y) + m * p.y_stride;
    if (p.y_type == GEMM_F32)
      number_store4(reinterpret_cast<float *>(row), n, p.n, sum);
    else if (p.y_type == GEMM_F16)
      number_store4(reinterpret_cast<__half *>(row), n, p.n, sum);
    else
      number_store4(reinterpret_cast<__nv_bfloat16 *>(row), n, p.n, sum);
  }
}

// ---- the whole

template <typename X, int kColumns, int kAhead>
__global__ void __launch_bounds__(threads, 1) run(const __grid_constant__ work w) {
  constexpr int eights = kColumns / 8, slot_bytes = kColumns * pitch * 4, ring_slots = kAhead + 1;
  extern __shared__ __align__(1024) uint8_t raw[];
  __shared__ uint32_t parts[INT2_FEW_PARTS_MOST];
  __shared__ int16_t first_part[INT2_FEW_BLOCKS_MOST + 1];
  ptx::let_next_grid_start();
  const int ranks = static_cast<int>(gridDim.y), rank = static_cast<int>(blockIdx.y);
  const int first_tile = w.plan.first_tile[rank], length = w.plan.first_tile[rank + 1] - first_tile;
  // The same for all lanes, and said to be: what follows from it is computed once a warp.
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), pair = warp / 2, half = warp % 2;
  const int lane = threadIdx.x % 32;
  const int total = w.blocks * length, begin = total * pair / pairs, end = total * (pair + 1) / pairs;
  const int first_block = w.plan.first_block[rank][pair], first = begin - first_block * length;

  const uint32_t x_at = ptx::shared_address(raw), ring_at = x_at + w.plan.x_bytes;
  const uint32_t slots_at = ring_at + ring_slots * ring_bytes;
  const uint32_t starts_at = x_at + length * kColumns * 2 * GEMM_GROUP;
  const uint32_t mine = ring_at + warp * warp_bytes + lane * 16;

  for (int i = threadIdx.x; i < w.plan.first_part[w.blocks]; i += threads)
    parts[i] = ptx::map_to_rank(slots_at + w.plan.parts[i] % 256 * slot_bytes, w.plan.parts[i] / 256);
  if (threadIdx.x <= w.blocks)
    first_part[threadIdx.x] = w.plan.first_part[threadIdx.x];
  ptx::wait_for_previous_grid();
  // x first: what is asked for behind the codes comes behind the codes.
  fetch_x<X, kColumns>(w.product, first_tile, length, x_at);
  ptx::copy_async_commit();

  // Rows behind the last are those of the last block once more.
  const uint8_t *const tiles = static_cast<const uint8_t *>(w.product.tiles) + half * warp_scales + lane * 16;
  const int scales_offset = INT2_SCALES_OFFSET - half * (warp_scales - 64);
  const auto tile_of = [&](int block, int tile) {
    const int row_block = min(static_cast<int>(blockIdx.x) * w.blocks + block, w.plan.row_blocks - 1);
    return tiles + (static_cast<int64_t>(row_block) * w.plan.tiles + first_tile + tile) * INT2_TILE_BYTES;
  };
  int fetch_left = end - begin, fetch_block = first_block, fetch_tile = first;
  const uint8_t *from = tile_of(fetch_block, fetch_tile);
  const auto fetch = [&](uint32_t to) {
    if (fetch_left > 0) {
      ptx::copy_async_16(to, from, 16);
      ptx::copy_async_16(to + INT2_UNIT_BYTES, from + INT2_UNIT_BYTES, 16);
      if (lane < 4)
        ptx::copy_async_16(to + warp_scales, from + scales_offset, 16);
      from += INT2_TILE_BYTES;
      fetch_left--;
      if (++fetch_tile == length) {
        fetch_tile = 0;
        from = tile_of(++fetch_block, 0);
      }
    }
    ptx::copy_async_commit();
  };
#pragma unroll 1
  for (int i = 0; i < kAhead; i++)
    fetch(mine + i * ring_bytes);

  ptx::copy_async_wait<kAhead>();
  __syncthreads();
  operand_place x_place = operand_at(x_at, lane);
  store_starts<X, eights>(x_place, reinterpret_cast<float *>(raw + (starts_at - x_at)), length, warp, lane);
  __syncthreads();

  // Kept, not computed again in the loop, whose integer instructions are what it waits for.
  uint32_t my_scales = lane / 4 * 4 + warp_scales - lane * 16, my_starts = starts_at + lane % 4 * 8;
  ptx::keep(my_scales), ptx::keep(my_starts), ptx::keep(x_place.even), ptx::keep(x_place.odd);
  struct held {
    int4 upper, lower;
    uint32_t upper_scales, lower_scales;
  };
  const auto load_tile = [&](uint32_t at) {
    return held{ptx::load_shared_int4(at), ptx::load_shared_int4(at + INT2_UNIT_BYTES),
                ptx::load_shared(at + my_scales), ptx::load_shared(at + my_scales + 32)};
  };
  const uint32_t ring_end = mine + ring_slots * ring_bytes;
  uint32_t at = mine, before = mine + kAhead * ring_bytes; // the slot that is read, and the one read before it
  float sum[2][eights][4] = {};
  int block = first_block, tile = first;
  ptx::copy_async_wait<kAhead - 1>();
  __syncwarp();
  held now = load_tile(at);
  for (int left = end - begin; left > 0; left--) {
    fetch(before);
    ptx::copy_async_wait<kAhead - 1>();
    __syncwarp();
    before = at;
    at = at + ring_bytes == ring_end ? mine : at + ring_bytes;
    const held next = load_tile(at);
    operand<eights> b;
    starting<eights> start;
    load_operand<eights>(b, x_place, tile);
#pragma unroll
    for (int t = 0; t < eights; t++) {
      const uint2 two = ptx::load_shared_uint2(my_starts + tile * (kColumns * 4) + t * 32);
      start.sums[t][0] = start.sums[t][2] = __uint_as_float(two.x);
      start.sums[t][1] = start.sums[t][3] = __uint_as_float(two.y);
    }
    multiply_unit<X, eights>(sum[0], now.upper, now.upper_scales, b, start);
    multiply_unit<X, eights>(sum[1], now.lower, now.lower_scales, b, start);
    now = next;
    if (++tile == length || left == 1) {
      float *const to =
          reinterpret_cast<float *>(raw + (slots_at - x_at + (pair * w.plan.slots + block - first_block) * slot_bytes));
      store_sums<eights, sizeof(X) == 4>(sum, to, half, lane);
      tile = 0;
      block++;
    }
  }
  if (ranks == 1) {
    __syncthreads();
  } else {
    ptx::cluster_arrive();
    ptx::cluster_wait();
  }
  write_y<kColumns>(w, parts, first_part, rank, ranks);
  if (ranks > 1) { // nobody leaves while another reads its sums
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();
  }
}

} // namespace int2_few
