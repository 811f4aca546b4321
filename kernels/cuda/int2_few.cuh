// Kernel of int2_few.h.
//
// A pair of warps takes a tile of 64 rows of W x 128 of K at a time, 32 rows each, through a ring that only the lanes
// which read it fill: no thread waits for another. A code c becomes the number c + 2^i by one instruction, a
// mask and an exponent; i differs by the place of the code in its word (int2_layout.h), and minus the sum of
// (2^i + 1) x, which sums start from, leaves c - 1. 2^i is at most 256 (f16) and 128 (bf16): f32 has the bits.
#pragma once

#include "int2_codes.cuh"
#include "int2_cut.cuh"
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
};

// ---- x

// Eight numbers of each of some rows of x, from memory to a block's shared memory: there, rows of 128 bytes, 64 of K,
// swizzled, those of all columns together. f32 takes two columns, of bf16: the first part is cut off, so that it does
// not overflow, and 2^-16 of the number is lost at most.
template <typename X, int kColumns> struct x_chunk {
  static constexpr int rows = sizeof(X) == 4 ? kColumns / 2 : kColumns, quads = sizeof(X) / 2;
  int4 held[rows][quads];

  __device__ void load(const int2_few_product &p, const uint8_t *from) {
#pragma unroll
    for (int row = 0; row < rows; row++) {
      if (row >= static_cast<int>(p.m))
        break;
#pragma unroll
      for (int i = 0; i < quads; i++)
        held[row][i] = __ldg(reinterpret_cast<const int4 *>(from + row * p.x_stride) + i);
    }
  }
  // chunk: counted from the first number of the block's.
  __device__ void store(const int2_few_product &p, uint32_t at, int chunk) const {
    const uint32_t to = at + chunk / 8 * (kColumns * 128);
    const auto place = [&](int column) { return to + column * 128 + (chunk % 8 ^ column % 8) * 16; };
#pragma unroll
    for (int row = 0; row < rows; row++) {
      if (row >= static_cast<int>(p.m))
        break;
      if constexpr (sizeof(X) == 4) {
        const int4 *const two = held[row];
        const int bits[8] = {two[0].x, two[0].y, two[0].z, two[0].w, two[1].x, two[1].y, two[1].z, two[1].w};
        uint32_t upper[4], lower[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const uint32_t low = bits[2 * i] & 0xffff0000, high = bits[2 * i + 1] & 0xffff0000;
          upper[i] = low >> 16 | high;
          lower[i] = int2_pack(__int_as_float(bits[2 * i]) - __uint_as_float(low),
                               __int_as_float(bits[2 * i + 1]) - __uint_as_float(high));
        }
        ptx::store_shared_int4(place(2 * row), upper);
        ptx::store_shared_int4(place(2 * row + 1), lower);
      } else {
        ptx::store_shared_int4(place(row), held[row][0]);
      }
    }
  }
};

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

// ---- the whole

// kRing: tiles that a warp's ring holds.
template <typename X, int kColumns, int kRing>
__global__ void __launch_bounds__(threads, 1) run(const __grid_constant__ work w) {
  constexpr int eights = kColumns / 8, slot_bytes = kColumns * pitch * 4;
  extern __shared__ __align__(1024) uint8_t raw[];
  __shared__ int2_parts parts;
  ptx::let_next_grid_start();
  const int2_cut &cut = w.plan.cut;
  // The same for all lanes, and said to be: what follows from it is computed once a warp.
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), pair = warp / 2, half = warp % 2;
  const uint32_t zero = ptx::unknown_zero(); // added to what is not to be computed again in the loop
  const int lane = threadIdx.x % 32 + zero;
  const int2_share mine = int2_cut_share(&cut, pairs, blockIdx.y, pair);
  const int length = mine.tiles, all = mine.end - mine.begin, first = mine.begin - mine.first_block * mine.tiles;

  const uint32_t x_at = ptx::shared_address(raw), ring_at = x_at + w.plan.x_bytes;
  const uint32_t slots_at = ring_at + kRing * ring_bytes;
  const uint32_t starts_at = x_at + length * kColumns * 2 * GEMM_GROUP;
  const uint32_t ring = ring_at + warp * warp_bytes + lane * 16;

  // Rows behind the last are those of the last block once more.
  const uint8_t *const tiles = static_cast<const uint8_t *>(w.product.tiles) + half * warp_scales + lane * 16;
  const int scales_offset = INT2_SCALES_OFFSET - half * (warp_scales - 64);
  const auto tile_of = [&](uint32_t block, uint32_t tile) {
    const uint32_t row_block = min(blockIdx.x * cut.blocks + block, cut.row_blocks - 1);
    return tiles + static_cast<uint64_t>(row_block * cut.tiles + mine.first_tile + tile) * INT2_TILE_BYTES;
  };
  // What is left of a run of tiles that follow each other, and behind it.
  int run = min(length - first, all), behind = all - run, fetch_block = mine.first_block;
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
  // A first tile before x may be asked for, the others behind x: what comes to the block comes in order, and x is
  // waited for first.
  fetch(ring);
  ptx::wait_for_previous_grid();
  const auto x_of = [&](int chunk) {
    return static_cast<const uint8_t *>(w.product.x) + mine.first_tile * (GEMM_GROUP * sizeof(X)) +
           chunk * (8 * sizeof(X));
  };
  const int chunks = length * (GEMM_GROUP / 8);
  int chunk = threadIdx.x;
  x_chunk<X, kColumns> held;
  if (chunk < chunks)
    held.load(w.product, x_of(chunk));
#pragma unroll 1
  for (int i = 1; i < kRing; i++)
    fetch(ring + i * ring_bytes);
  int2_list_parts<pairs, threads>(cut, slots_at, slot_bytes, parts);
#pragma unroll 1
  while (chunk < chunks) {
    held.store(w.product, x_at, chunk);
    chunk += threads;
    if (chunk < chunks)
      held.load(w.product, x_of(chunk));
  }
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
  const uint32_t ring_end = ring + kRing * ring_bytes + zero;
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
  uint32_t at = ring;
  float sum[2][eights][4] = {};
  take_tile(at);
  for (int slot = 0, tile = first, left = all; left > 0; slot++, tile = 0) {
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
      at = at + ring_bytes == ring_end ? ring : at + ring_bytes;
      multiply_unit<X, eights>(sum[0], now.upper, now.upper_scales, b, start, exponents);
      multiply_unit<X, eights>(sum[1], now.lower, now.lower_scales, b, start, exponents);
      take_tile(at);
    } while (x.even != x_end);
    float *const to = reinterpret_cast<float *>(raw + (slots_at - x_at + (pair * cut.slots + slot) * slot_bytes));
    store_sums<eights, sizeof(X) == 4>(sum, to, half, lane);
  }
  if (cut.split_log2 == 0) {
    __syncthreads();
  } else {
    ptx::cluster_arrive();
    ptx::cluster_wait();
  }
  int2_write_y<threads, pitch>(cut, w.product, parts, nullptr);
  if (cut.split_log2 > 0) { // nobody leaves while another reads its sums
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();
  }
}

} // namespace int2_few
