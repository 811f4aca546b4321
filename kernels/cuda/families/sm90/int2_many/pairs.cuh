// Products of narrow tiles of int2_many/kernel.cuh: W's words are the metadata of sparse matrix instructions as they
// lie (int2/layout.h), so that no code is unpacked. What the instruction takes for x is, for each pair of K (k and k +
// 8), four rows 0, x[k], x[k + 8] and their sum in f16, of which the lower bits of both codes choose one and the upper
// bits one; the other operand says what they count, -1 and 2.
//
// Warps of their own make the pairs of x, in core matrices of 8 rows of K by 8 columns, whose first rows of each four
// stay zeros. f16 holds x and the sums as they are but for columns whose numbers are large, not finite, or, of bf16,
// small: these are scaled by a power of two, and `multiplier` makes up for that.
#pragma once

#include "../../../device/half2.cuh"
#include "../../../device/wgmma_between.cuh"
#include "copies.cuh"

namespace int2_many {

// The eight rows that a matrix of numbers goes to, each in another core matrix, are in different banks.
constexpr int core_bytes = pair_core_bytes, column_bytes = pair_column_bytes;

// Numbers of two columns as f16.
template <typename X> __device__ inline uint32_t pair_numbers(uint32_t two) {
  if constexpr (std::is_same_v<X, __half>)
    return two;
  const float2 value = floats_of<X>(two);
  return half2_pack(value.x, value.y);
}

// 2^exponent, exponent from -149 on.
__device__ inline float power_of_two(int exponent) {
  return exponent < -126 ? __uint_as_float(1u << (exponent + 149)) : __uint_as_float((exponent + 127) << 23);
}

// Of eight columns: where x comes from and pairs go to, by a lane.
struct pair_place {
  uint32_t even, odd; // of x: rows of a matrix, for even and odd steps of 32 of K
  uint32_t numbers, sums;

  // x, rows: of a unit's first column.
  __device__ pair_place(uint32_t x, uint32_t rows, uint32_t lane) {
    const uint32_t row = lane % 8, matrix = lane / 8;
    even = x + row * 128 + (matrix ^ row) * 16;
    odd = even ^ 64;
    const uint32_t to = rows + row * core_bytes;
    numbers = to + matrix / 2 * 64 + matrix % 2 * 16 + 16;
    sums = to + matrix / 2 * (8 * core_bytes) + matrix % 2 * 64 + 48;
  }
  __device__ pair_place(const pair_place &first, uint32_t x_by, uint32_t rows_by)
      : even(first.even + x_by), odd(first.odd + x_by), numbers(first.numbers + rows_by), sums(first.sums + rows_by) {}
  // Step i of 32 of K.
  __device__ void load(uint32_t (&out)[4], int i, uint32_t half_bytes) const {
    ptx::load_matrices_transposed(out, (i % 2 ? odd : even) + i / 2 * half_bytes);
  }
  __device__ void store_numbers(const uint32_t (&two)[4], int i) const {
    ptx::store_matrices(numbers + i * (8 * core_bytes), two);
  }
  // Of steps i - 1 and i.
  __device__ void store_sums(const uint32_t (&two)[4], int i) const {
    ptx::store_matrices(sums + (i - 1) * (8 * core_bytes), two);
  }
  __device__ void next() {
    even += 1024, odd += 1024;
    numbers += column_bytes, sums += column_bytes;
  }
};

// Pairs of a unit whose columns are scaled where they have to be.
template <typename Shape>
__device__ __noinline__ void make_scaled_pairs(uint32_t x, uint32_t rows, int eights, uint32_t multiplier) {
  using X = typename Shape::number;
  const uint32_t lane = ptx::thread() % 32;
  pair_place at(x, rows, lane);
#pragma unroll 1
  for (int eight = 0; eight < eights; eight++, at.next()) {
    // Of the lane's two columns: the largest magnitude, as bits of f32, of which NaN is the largest.
    uint32_t most[2] = {};
    __half2 none = half2_of(0); // f16: of each, NaN where a sum is none that f16 has
    uint32_t two[4];
#pragma unroll 1
    for (int i = 0; i < 4; i++) {
      at.load(two, i, Shape::half_bytes);
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const float2 value = floats_of<X>(two[j]);
        most[0] = max(most[0], __float_as_uint(fabsf(value.x))),
        most[1] = max(most[1], __float_as_uint(fabsf(value.y)));
        if (Shape::f16 && j % 2 == 1)
          none = __hfma2(__hadd2(half2_of(two[j - 1]), half2_of(two[j])), half2_of(0), none);
      }
    }
#pragma unroll
    for (int lanes = 4; lanes < 32; lanes *= 2) {
#pragma unroll
      for (int j = 0; j < 2; j++)
        most[j] = max(most[j], __shfl_xor_sync(0xffffffffu, most[j], lanes));
      if constexpr (Shape::f16)
        none = __hadd2(none, half2_of(__shfl_xor_sync(0xffffffffu, half2_bits(none), lanes)));
    }
    float factor[2][2];
#pragma unroll
    for (int j = 0; j < 2; j++) {
      // To less than 2^14, so that sums are less than 2^15: in two steps, for what is small needs more than 2^127.
      const bool finite = most[j] < 0x7f800000, small = most[j] < 0x00800000;
      const int exponent =
          small ? -149 + (31 - __clz(static_cast<int>(most[j] | 1))) : static_cast<int>(most[j] >> 23) - 127;
      // Only what would be unusual alone: no column is scaled because of another.
      const bool fits =
          Shape::f16 ? (half2_bits(none) >> 16 * j & 0x7fff) == 0 : exponent < 14 && exponent >= half_least_exponent;
      const int by = most[j] == 0 || fits || !finite ? 0 : 13 - exponent;
      factor[j][0] = power_of_two(by / 2), factor[j][1] = power_of_two(by - by / 2);
      if (lane < 4)
        ptx::store_shared(multiplier + (8 * eight + 2 * lane + j) * 4,
                          finite ? __float_as_uint(power_of_two(-by)) : 0x7fc00000);
    }
    uint32_t sums[4];
#pragma unroll 1
    for (int i = 0; i < 4; i++) {
      at.load(two, i, Shape::half_bytes);
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const float2 value = floats_of<X>(two[j]);
        two[j] = half2_pack(value.x * factor[0][0] * factor[0][1], value.y * factor[1][0] * factor[1][1]);
      }
      at.store_numbers(two, i);
      sums[0] = sums[2], sums[1] = sums[3];
      sums[2] = half2_add(two[0], two[1]);
      sums[3] = half2_add(two[2], two[3]);
      if (i % 2 == 1)
        at.store_sums(sums, i);
    }
  }
}

// Pairs of a unit, of columns that are not scaled; returns whether there are any that have to be.
template <typename Shape> __device__ inline bool make_pairs(pair_place place, int eights) {
  using X = typename Shape::number;
  // f16: zeros, or NaN where a sum is none that f16 has. bf16: whether a column's largest is where f16 has the bits.
  __half2 none = half2_of(0);
  bool scaled = false;
#pragma unroll 1
  for (int eight = 0; eight < eights; eight++, place.next()) {
    __nv_bfloat162 most = __float2bfloat162_rn(0.0f);
    uint32_t two[4][4], sums[2][4];
#pragma unroll
    for (int i = 0; i < 4; i++)
      place.load(two[i], i, Shape::half_bytes);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if constexpr (!Shape::f16)
#pragma unroll
        for (int j = 0; j < 4; j++) {
          most = __hmax2_nan(most, __habs2(reinterpret_cast<const __nv_bfloat162 &>(two[i][j])));
          two[i][j] = pair_numbers<X>(two[i][j]);
        }
      place.store_numbers(two[i], i);
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const __half2 sum = __hadd2(half2_of(two[i][2 * j]), half2_of(two[i][2 * j + 1]));
        sums[i / 2][i % 2 * 2 + j] = half2_bits(sum);
        if constexpr (Shape::f16)
          none = __hfma2(sum, half2_of(0), none);
      }
    }
    place.store_sums(sums[0], 1);
    place.store_sums(sums[1], 3);
    if constexpr (!Shape::f16) {
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2) {
        const uint32_t other = __shfl_xor_sync(0xffffffffu, reinterpret_cast<const uint32_t &>(most), lanes);
        most = __hmax2_nan(most, reinterpret_cast<const __nv_bfloat162 &>(other));
      }
      const uint32_t bits = reinterpret_cast<const uint32_t &>(most), low = bits & 0xffff, high = bits >> 16;
      constexpr uint32_t least = (127 + half_least_exponent) << 7, end = (127 + 14) << 7;
      scaled |= (low != 0 && low - least >= end - least) || (high != 0 && high - least >= end - least);
    }
  }
  if constexpr (Shape::f16)
    scaled = (half2_bits(none) & 0x7fff7fff) != 0;
  return __any_sync(0xffffffffu, scaled);
}

// All the pairs that one warp makes. warp: of those that do.
template <typename Shape> __device__ inline void produce_pairs(const work &w, shared<Shape> &s, uint32_t warp) {
  constexpr int each = Shape::pair_eights;
  const uint32_t all = units_of(w, ptx::block()), part = warp % Shape::pair_parts;
  const int eights = min(each, Shape::eights - static_cast<int>(part) * each); // of columns, this warp's
  const uint32_t x_first = ptx::shared_address(s.x[0]) + part * each * 1024;
  const uint32_t rows_first = ptx::shared_address(s.pair.rows[0]) + part * each * column_bytes;
  pair_place first(x_first, rows_first, ptx::thread() % 32);
  first.even = ptx::held(first.even), first.odd = ptx::held(first.odd);
  first.numbers = ptx::held(first.numbers), first.sums = ptx::held(first.sums);
  const uint32_t barriers = ptx::held(ptx::shared_address(s.full)),
                 unusual = ptx::shared_address(s.pair.unusual) + part;
  cursor<Shape::stages> at(warp / Shape::pair_parts);
#pragma unroll 1
  for (uint32_t done = warp / Shape::pair_parts; done < all; done += Shape::pair_turns) {
    const auto barrier = [&](const uint64_t *of) {
      return barriers + at.stage * 8 +
             static_cast<uint32_t>(reinterpret_cast<const char *>(of) - reinterpret_cast<const char *>(s.full));
    };
    // This first: copies come in any order, so that of x the phase before might not be complete yet, which the parity
    // of this one would not tell.
    if (done >= Shape::stages)
      ptx::barrier_wait(barrier(s.empty), at.phase ^ 1);
    ptx::barrier_wait(barrier(s.pair.x_full), at.phase);
    const bool scaled = make_pairs<Shape>({first, at.stage * Shape::x_bytes, at.stage * Shape::pair_bytes}, eights);
    if (scaled)
      make_scaled_pairs<Shape>(x_first + at.stage * Shape::x_bytes, rows_first + at.stage * Shape::pair_bytes, eights,
                               ptx::shared_address(s.pair.multiplier[at.stage]) + part * each * 32);
    ptx::store_shared_byte(unusual + at.stage * 8, scaled);
    ptx::fence_async_shared();
    ptx::barrier_arrive(barrier(s.full));
    ptx::barrier_arrive(barrier(s.pair.x_empty));
#pragma unroll
    for (int i = 0; i < Shape::pair_turns; i++)
      at.advance();
  }
}

// By the first so many threads of a block, before anybody makes pairs.
template <typename Shape> __device__ inline void clear_pairs(shared<Shape> &s, uint32_t threads = Shape::threads) {
  uint4 *const all = reinterpret_cast<uint4 *>(s.pair.rows);
  for (uint32_t i = threadIdx.x; i < sizeof s.pair.rows / 16; i += threads)
    all[i] = make_uint4(0, 0, 0, 0);
  if (threadIdx.x < Shape::stages)
    s.pair.unusual[threadIdx.x] = 0;
  ptx::fence_async_shared();
}

// What a thread needs for each unit: where its codes and its rows' scales are in a stage, and what the bits of codes
// count. Kept, not computed again in the loop, where every instruction counts.
template <typename Shape> struct pair_constants {
  uint32_t codes, scales; // scales: by the codes
  uint32_t bits[2], ones;

  __device__ pair_constants(const work &work, const shared<Shape> &s) {
    const uint32_t thread = threadIdx.x % 128, w = ptx::shared_address(s.w[0]);
    const uint32_t first = codes_of(w + threadIdx.x / 128 * INT2_TILE_BYTES, thread);
    codes = ptx::held(first), scales = ptx::held(scales_by(first, thread) - first);
    const uint32_t both = work.product.large_scales ? 0x3c00b800 : 0x4000bc00; // -1 and 2, or the half
#pragma unroll
    for (int i = 0; i < 2; i++)
      bits[i] = __shfl_xor_sync(0xffffffffu, both + ptx::unknown_zero(), 1 + i);
    ones = ptx::held(0x3c003c00);
  }
};

// The other operand: what bits count, times two rows' scales. `bits` is twice the same, but nobody knows: the assembler
// copies registers that it knows to be alike for every instruction that takes them.
struct scaled_bits {
  uint32_t of[4];

  __device__ scaled_bits(const uint32_t (&bits)[2], uint32_t rows) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      of[2 * i] = half2_bits(__hmul2(__low2half2(half2_of(rows)), half2_of(bits[i])));
      of[2 * i + 1] = half2_bits(__hmul2(__high2half2(half2_of(rows)), half2_of(bits[i])));
    }
  }
};

// The products of a unit, added up with `sum` or, without `add`, alone.
template <int kCount>
__device__ inline void multiply_unit(float (&sum)[kCount], const scaled_bits &bits, const uint32_t (&words)[4],
                                     uint64_t x, bool add) {
  constexpr int step = 4 * core_bytes / 16;
  keep(sum);
  ptx::wgmma_fence();
#pragma unroll
  for (int i = 0; i < 4; i++) {
    ptx::wgmma_sparse_f16_lower(sum, bits.of, x + 2 * i * step, words[i], add || i > 0);
    ptx::wgmma_sparse_f16_upper(sum, bits.of, x + (2 * i + 1) * step, words[i], true);
  }
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  keep(sum);
}

// The sums of a segment, of one warpgroup; of a weight with large scales the half of them. What bits count is
// multiplied by W's scales before, for which f16 has the bits, so that sums stay where the matrix instruction adds to
// them. Not so in units that are unusual.
template <typename Shape>
__device__ inline void multiply_pairs(shared<Shape> &s, uint32_t &done, uint32_t end, const pair_constants<Shape> &lane,
                                      float (&sum)[4 * Shape::eights]) {
  constexpr int numbers = 4 * Shape::eights;
  cursor<Shape::stages> at(done);
  const uint64_t first = ptx::core_descriptor(ptx::shared_address(s.pair.rows[0]), core_bytes, column_bytes);
#pragma unroll
  for (int i = 0; i < numbers; i++)
    sum[i] = 0.0f;
#pragma unroll 1
  for (; done < end; done++, at.advance()) {
    ptx::barrier_wait(ptx::shared_address(&s.full[at.stage]), at.phase);
    const uint32_t here = lane.codes + at.stage * s.w_bytes;
    const uint4 four = ptx::load_shared_uint4(here);
    const uint32_t rows = ptx::load_shared(here + lane.scales);
    const uint32_t unusual = static_cast<uint32_t>(s.pair.unusual[at.stage]);
    const uint64_t x = first + at.stage * (s.pair_bytes / 16);
    uint32_t words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int i = 0; i < 4; i++)
      ptx::keep(words[i]);
    if (unusual == 0) {
      multiply_unit(sum, scaled_bits(lane.bits, rows), words, x, true);
    } else {
      // Of a column that is not scaled sums go on as where no other is, so that its bits do not depend on others.
      float apart[numbers];
      multiply_unit(apart, scaled_bits(lane.bits, lane.ones), words, x, false);
      const float2 scale = floats_of<__half>(rows);
      const float *const by = s.pair.multiplier[at.stage] + ptx::thread() % 4 * 2;
      const auto multiplier = [&](int i) {
        const bool any = (unusual >> i / 4 / Shape::pair_eights * 8 & 1) != 0;
        return any ? by[i / 4 * 8 + i % 2] : 1.0f;
      };
#pragma unroll
      for (int i = 0; i < numbers; i++)
        apart[i] = fmaf(apart[i] * multiplier(i), i % 4 < 2 ? scale.x : scale.y, sum[i]);
      multiply_unit(sum, scaled_bits(lane.bits, rows), words, x, true);
#pragma unroll
      for (int i = 0; i < numbers; i++)
        sum[i] = multiplier(i) != 1.0f ? apart[i] : sum[i];
    }
    ptx::barrier_arrive(ptx::shared_address(&s.empty[at.stage]));
  }
}

} // namespace int2_many
