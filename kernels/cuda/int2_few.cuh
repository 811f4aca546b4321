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
static_assert(INT2_FEW_PARTS_MOST <= threads && INT2_FEW_BLOCKS_MOST < threads, "a thread each");

struct work {
  int2_few_product product;
  int blocks;
  int2_few_plan plan;
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

template <int kEights> __device__ inline operand_place group_at(const operand_place &first, int group) {
  return {first.even + group * (kEights * 2048), first.odd + group * (kEights * 2048)};
}

template <int kEights> __device__ inline void load_operand(operand<kEights> &out, const operand_place &at) {
  constexpr int columns = 8 * kEights;
#pragma unroll
  for (int t = 0; t < kEights; t++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      uint32_t matrices[4];
      ptx::load_matrices(matrices, (i % 2 ? at.odd : at.even) + t * 1024 + i / 2 * columns * 128);
      out.x[t][2 * i][0] = matrices[0];
      out.x[t][2 * i][1] = matrices[1];
      out.x[t][2 * i + 1][0] = matrices[2];
      out.x[t][2 * i + 1][1] = matrices[3];
    }
  }
}

// Where the sums of a group start from: minus the sum of (offset + 1) x, [group][column], each two columns twice, as a
// lane's four sums of two rows want them.
template <typename X, int kEights>
__device__ inline void store_starts(const operand_place &x, uint32_t starts, int length, int warp, int lane) {
#pragma unroll 1
  for (int group = warp; group < length; group += warps) {
    operand<kEights> b;
    load_operand<kEights>(b, group_at<kEights>(x, group));
#pragma unroll
    for (int t = 0; t < kEights; t++) {
      float sum[2][4] = {};
#pragma unroll
      for (int s = 0; s < 8; s++) {
        const uint32_t left = int2_codes<X>::constant(-1.0f - int2_codes<X>::offset(s % 4));
        const uint32_t right = int2_codes<X>::constant(-1.0f - int2_codes<X>::offset(s % 4 + 4));
        int2_codes<X>::multiply(sum[s % 2], {left, left, right, right}, b.x[t][s], sum[s % 2]);
      }
      uint32_t bits[4];
#pragma unroll
      for (int i = 0; i < 4; i++)
        bits[i] = __float_as_uint(sum[0][i] + sum[1][i]); // rows are alike
      if (lane < 4)
        ptx::store_shared_int4(starts + (group * kEights + t) * 64 + lane * 16, bits);
    }
  }
}

// What the sums of 8 columns start from, for each of a thread's four.
template <int kEights> struct starting { float sums[kEights][4]; };

// 16 rows of W x a tile's K, added to the sums.
template <typename X, int kEights>
__device__ inline void multiply_unit(float (&sum)[kEights][4], const int4 &words, uint32_t scales,
                                     const operand<kEights> &b, const starting<kEights> &start,
                                     const uint32_t (&exponents)[int2_codes<X>::places]) {
  float part[kEights][4];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const auto upper = int2_codes<X>::view(half ? words.z : words.x),
               lower = int2_codes<X>::view(half ? words.w : words.y);
#pragma unroll
    for (int s = 0; s < 4; s++) {
      const uint32_t first = exponents[int2_codes<X>::place(s)], second = exponents[int2_codes<X>::place(s + 4)];
      const uint32_t a[4] = {int2_codes<X>::number(upper, s, first), int2_codes<X>::number(lower, s, first),
                             int2_codes<X>::number(upper, s + 4, second), int2_codes<X>::number(lower, s + 4, second)};
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

// kRing: tiles that a warp's ring holds.
template <typename X, int kColumns, int kRing>
__global__ void __launch_bounds__(threads, 1) run(const __grid_constant__ work w) {
  constexpr int eights = kColumns / 8, slot_bytes = kColumns * pitch * 4;
  extern __shared__ __align__(1024) uint8_t raw[];
  __shared__ uint32_t parts[INT2_FEW_PARTS_MOST];
  __shared__ int16_t first_part[INT2_FEW_BLOCKS_MOST + 1];
  ptx::let_next_grid_start();
  const int ranks = static_cast<int>(gridDim.y), rank = static_cast<int>(blockIdx.y);
  const int first_tile = w.plan.first_tile[rank], length = w.plan.first_tile[rank + 1] - first_tile;
  // The same for all lanes, and said to be: what follows from it is computed once a warp.
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), pair = warp / 2, half = warp % 2;
  const uint32_t zero = ptx::unknown_zero(); // added to what is not to be computed again in the loop
  const int lane = threadIdx.x % 32 + zero;
  const int total = w.blocks * length, begin = total * pair / pairs, end = total * (pair + 1) / pairs;
  const int first_block = w.plan.first_block[rank][pair], first = begin - first_block * length;

  const uint32_t x_at = ptx::shared_address(raw), ring_at = x_at + w.plan.x_bytes;
  const uint32_t slots_at = ring_at + kRing * ring_bytes;
  const uint32_t starts_at = x_at + length * kColumns * 2 * GEMM_GROUP;
  const uint32_t mine = ring_at + warp * warp_bytes + lane * 16;

  // Asked for before the copies and looked at behind them; a few in each warp, whose lanes are served one after
  // another.
  const int entry = warp + lane * warps;
  uint32_t part = 0, start = 0;
  if (entry < w.plan.part_count)
    part = w.plan.parts[entry];
  if (entry <= w.blocks)
    start = w.plan.first_part[entry];
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
  // What is left of a run of tiles that follow each other, and behind it.
  int run = min(length - first, end - begin), behind = end - begin - run, fetch_block = first_block;
  const uint8_t *from = tile_of(fetch_block, first);
  const auto fetch = [&](uint32_t to) {
    if (run > 0) {
      ptx::copy_async_16(to, from, 16);
      ptx::copy_async_16(to + INT2_UNIT_BYTES, from + INT2_UNIT_BYTES, 16);
      if (lane < 4)
        ptx::copy_async_16(to + warp_scales, from + scales_offset, 16);
      from += INT2_TILE_BYTES;
      ptx::keep(from);
      run--;
      while (run == 0 && behind > 0) { // once; an `if` would be computed each time
        run = min(length, behind), behind -= run;
        from = tile_of(++fetch_block, 0);
      }
    }
    ptx::copy_async_commit();
  };
#pragma unroll 1
  for (int i = 0; i < kRing; i++)
    fetch(mine + i * ring_bytes);

  if (entry < w.plan.part_count)
    parts[entry] = ptx::map_to_rank(slots_at + part % 256 * slot_bytes, part / 256);
  if (entry <= w.blocks)
    first_part[entry] = static_cast<int16_t>(start);

  ptx::copy_async_wait<kRing>();
  __syncthreads();
  const operand_place x_first = operand_at(x_at, lane);
  store_starts<X, eights>(x_first, starts_at, length, warp, lane);
  __syncthreads();

  // Kept, not computed again in the loop, where every instruction counts.
  uint32_t my_scales = lane / 4 * 4 + warp_scales - lane * 16 + zero;
  ptx::keep(my_scales);
  uint32_t exponents[int2_codes<X>::places];
#pragma unroll
  for (int i = 0; i < int2_codes<X>::places; i++)
    exponents[i] = int2_codes<X>::exponent(i) + zero;
  const uint32_t ring_end = mine + kRing * ring_bytes + zero;
  struct {
    int4 upper, lower;
    uint32_t upper_scales, lower_scales;
  } now;
  const auto take_tile = [&](uint32_t at) {
    ptx::copy_async_wait<kRing - 1>();
    __syncwarp();
    now = {ptx::load_shared_int4(at), ptx::load_shared_int4(at + INT2_UNIT_BYTES), ptx::load_shared(at + my_scales),
           ptx::load_shared(at + my_scales + 32)};
  };
  uint32_t at = mine;
  float sum[2][eights][4] = {};
  take_tile(at);
  for (int block = first_block, tile = first, left = end - begin; left > 0; block++, tile = 0) {
    const int tiles_here = min(length - tile, left);
    uint32_t starts = starts_at + tile * (kColumns * 8) + lane % 4 * 16;
    operand_place x = group_at<eights>(x_first, tile);
    const uint32_t x_end = group_at<eights>(x, tiles_here).even;
    left -= tiles_here;
#pragma unroll 1
    do {
      operand<eights> b;
      starting<eights> start;
      load_operand<eights>(b, x);
#pragma unroll
      for (int t = 0; t < eights; t++) {
        const int4 four = ptx::load_shared_int4(starts + t * 64);
        start.sums[t][0] = __int_as_float(four.x);
        start.sums[t][1] = __int_as_float(four.y);
        start.sums[t][2] = __int_as_float(four.z);
        start.sums[t][3] = __int_as_float(four.w);
      }
      x = group_at<eights>(x, 1);
      starts += kColumns * 8;
      __syncwarp(); // all have their scales
      fetch(at);
      at = at + ring_bytes == ring_end ? mine : at + ring_bytes;
      multiply_unit<X, eights>(sum[0], now.upper, now.upper_scales, b, start, exponents);
      multiply_unit<X, eights>(sum[1], now.lower, now.lower_scales, b, start, exponents);
      take_tile(at);
    } while (x.even != x_end);
    float *const to =
        reinterpret_cast<float *>(raw + (slots_at - x_at + (pair * w.plan.slots + block - first_block) * slot_bytes));
    store_sums<eights, sizeof(X) == 4>(sum, to, half, lane);
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
