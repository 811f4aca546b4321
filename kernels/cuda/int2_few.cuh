// Kernel of int2_few.h.
//
// A pair of warps takes a tile of 64 rows of W x 128 of K at a time, 32 rows each; four more warps have tiles
// copied ahead. A code c becomes the number c + 2^i by one instruction, a mask and an exponent; i differs by the place
// of the code in its word (int2_layout.h), and minus the sum of (2^i + 1) x, which sums start from, leaves c - 1. 2^i
// is at most 256 (f16) and 128 (bf16): f32 has the bits. Of a half block of rows the pair's warps have a tile each, of
// two that follow each other along K.
#pragma once

#include "int2_codes.cuh"
#include "int2_cut.cuh"
#include "int2_few.h"
#include "int2_layout.h"
#include "number.cuh"
#include "ptx.cuh"

namespace int2_few {

constexpr int pairs = INT2_FEW_PAIRS, threads = 64 * pairs, warps = 2 * pairs;
constexpr int pitch = INT2_BLOCK_ROWS + 4;
constexpr int ring_barrier = 1, asked_barrier = 2, consumer_barrier = 3;

struct work {
  int2_few_product product;
  int2_few_plan plan;
};

// ---- x

// In shared memory, of each group a row of 256 bytes for each of the plan's columns, whose 16-byte units are swizzled
// in each 128 by the number of the row; behind all of them, of each group, what sums start from: [eight columns][4]
// quads for lanes of the same lane % 4, which are two columns twice.
struct x_place {
  uint32_t numbers, starts;
};

// Eight numbers of two columns of x, from memory to a block's shared memory, by a warp for two groups: of two rows or,
// of f32, of one in two columns of bf16: the first part is cut off, so that it does not overflow, and 2^-16 of the
// number is lost at most. Lane 4 g + q has the eight of 16 q + 8 (g % 2) and on of the 64 of g / 2: so from what its
// codes count depends on q and g % 2 alone.
template <typename X> struct x_part {
  static constexpr bool splits = sizeof(X) == 4;
  int4 held[2];

  // Of the 16 units of a group.
  static __device__ inline int unit_of(int lane) {
    return lane % 16 / 8 * 8 + lane % 4 * 2 + lane / 4 % 2;
  }
  // from: the numbers in the first row. Of an odd number of rows the last is taken twice.
  __device__ void load(const uint8_t *from, uint32_t x_stride, int rows, int part) {
    const uint32_t row = splits ? part : 2 * part;
    const int4 *const first = reinterpret_cast<const int4 *>(from + row * x_stride);
    held[0] = __ldg(first);
    if (splits)
      held[1] = __ldg(first + 1);
    else
      held[1] = __ldg(reinterpret_cast<const int4 *>(from + min(row + 1, rows - 1) * x_stride));
  }
  // to: the lane's part of the group.
  __device__ void store(const x_place &to, int part) const {
    uint32_t words[2][4];
    if constexpr (splits) {
      const int bits[8] = {held[0].x, held[0].y, held[0].z, held[0].w, held[1].x, held[1].y, held[1].z, held[1].w};
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const uint32_t low = bits[2 * i] & 0xffff0000, high = bits[2 * i + 1] & 0xffff0000;
        words[0][i] = low >> 16 | high;
        words[1][i] = int2_pack(__int_as_float(bits[2 * i]) - __uint_as_float(low),
                                __int_as_float(bits[2 * i + 1]) - __uint_as_float(high));
      }
    } else {
#pragma unroll
      for (int i = 0; i < 2; i++) {
        words[i][0] = held[i].x, words[i][1] = held[i].y;
        words[i][2] = held[i].z, words[i][3] = held[i].w;
      }
    }
    const int lane = threadIdx.x % 32, q = lane % 4, odd = lane / 4 % 2;
    const uint32_t swizzled = unit_of(lane) % 8 * 16 ^ (part & 3) * 32;
    ptx::store_shared_int4(to.numbers + part * 512 + swizzled, words[0]);
    ptx::store_shared_int4(to.numbers + part * 512 + 256 + (swizzled ^ 16), words[1]);

    // A lane's eight numbers of a column as rows g and g + 8 of the left operand. The right one's even columns have
    // what codes of even g % 2 count from, its odd ones that of odd.
    using codes = int2_codes<X>;
    const uint32_t less = codes::constant(-1.0f - codes::offset(q + 4 * odd));
    float sum[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      constexpr float zeros[4] = {};
      float both[4];
      codes::multiply(both, words[i], {less, less}, zeros);
      if constexpr (codes::alike)
        sum[i] = both[0] + both[2];
      else
        sum[i] = odd ? both[1] + both[3] : both[0] + both[2];
#pragma unroll
      for (int lanes = 4; lanes < 16; lanes *= 2)
        sum[i] += __shfl_xor_sync(0xffffffff, sum[i], lanes);
    }
    const int first = __float_as_int(sum[0]), second = __float_as_int(sum[1]);
    if (lane % 16 == 0)
      ptx::store_shared_int4(to.starts + part * 16, make_int4(first, second, first, second));
  }
};

// ---- products

// x of half a group as the instruction wants it.
template <int kEights> struct operand { uint32_t x[kEights][4][2]; };

// Where a lane's part of a group begins, for even and odd steps of 32 of K.
struct operand_place {
  uint32_t even, odd;
};

// columns: of which there is x; others repeat them.
__device__ inline operand_place operand_at(uint32_t x, int columns, int lane) {
  const int column = lane % 8 & (columns - 1);
  const uint32_t row = x + column * 256;
  return {row + (lane / 8 ^ column) * 16, row + (4 + lane / 8 ^ column) * 16};
}

template <int kEights> __device__ inline void load_operand(operand<kEights> &out, const operand_place &at, int half) {
#pragma unroll
  for (int t = 0; t < kEights; t++) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      uint32_t matrices[4];
      ptx::load_matrices(matrices, (i ? at.odd : at.even) + t * 2048 + half * 128);
      out.x[t][2 * i][0] = matrices[0];
      out.x[t][2 * i][1] = matrices[1];
      out.x[t][2 * i + 1][0] = matrices[2];
      out.x[t][2 * i + 1][1] = matrices[3];
    }
  }
}

// 16 rows of W x half of a tile's K, added to the sums.
template <typename X, int kEights>
__device__ inline void multiply_unit(float (&out)[kEights][4], uint32_t upper_word, uint32_t lower_word,
                                     const operand<kEights> &b, const float (&start)[kEights][4],
                                     const uint32_t (&exponents)[int2_codes<X>::places]) {
  const auto upper = int2_codes<X>::view(upper_word), lower = int2_codes<X>::view(lower_word);
#pragma unroll
  for (int s = 0; s < 4; s++) {
    const uint32_t first = exponents[int2_codes<X>::place(s)], second = exponents[int2_codes<X>::place(s + 4)];
    const uint32_t a[4] = {int2_codes<X>::number(upper, s, first), int2_codes<X>::number(lower, s, first),
                           int2_codes<X>::number(upper, s + 4, second), int2_codes<X>::number(lower, s + 4, second)};
#pragma unroll
    for (int t = 0; t < kEights; t++)
      int2_codes<X>::multiply(out[t], a, b.x[t][s], s == 0 ? start[t] : static_cast<const float(&)[4]>(out[t]));
  }
}

template <int kEights>
__device__ inline void add_scaled(float (&sum)[kEights][4], const float (&part)[kEights][4], uint32_t scales) {
  const float2 row = __half22float2(reinterpret_cast<const __half2 &>(scales));
#pragma unroll
  for (int t = 0; t < kEights; t++) {
#pragma unroll
    for (int i = 0; i < 4; i++)
      sum[t][i] = fmaf(part[t][i], i < 2 ? row.x : row.y, sum[t][i]);
  }
}

// ---- sums to y

// Those of the plan's columns.
template <int kEights, bool kSplit>
__device__ inline void store_sums(float (&sum)[2][kEights][4], float *slot, int columns, int half, int lane) {
#pragma unroll
  for (int u = 0; u < 2; u++) {
#pragma unroll
    for (int t = 0; t < kEights; t++) {
      float *at = slot + 32 * half + 16 * u + lane / 4, *d = sum[u][t];
      if (8 * t + lane % 4 * 2 < columns) {
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
      }
#pragma unroll
      for (int i = 0; i < 4; i++)
        d[i] = 0.0f;
    }
  }
}

// ---- tiles under way

// Warps that only have tiles copied, each for some pairs, so that who computes is never held up by the copy engine;
// with fewer of them those that compute could have no more registers.
constexpr int suppliers = 4, supplied = pairs / suppliers, all_threads = threads + 32 * suppliers;

// Behind the tiles of a stage, one of each pair: barriers that they have come, and, of each supplier, that the lanes of
// its pairs have taken theirs.
constexpr int full = pairs * INT2_TILE_BYTES, empty = full + 8, barriers = 1 + suppliers;
static_assert(INT2_FEW_STAGE_BYTES >= full + 8 * barriers && INT2_FEW_STAGE_BYTES % INT2_FEW_ALIGN == 0);

// By a lane of each warp.
__device__ inline void make_barriers(const work &w, uint32_t ring, int warp) {
#pragma unroll 1
  for (uint32_t i = warp; i / barriers * INT2_FEW_STAGE_BYTES < w.plan.ring_bytes; i += warps)
    ptx::barrier_init(ring + i / barriers * INT2_FEW_STAGE_BYTES + full + i % barriers * 8,
                      i % barriers == 0 ? suppliers : 2 * supplied * 32);
  ptx::fence_barrier_init();
}

// To the next stage; behind the last the first, in the phase of the other parity. By instructions that are left out,
// where the compiler computes both and selects.
__device__ inline void advance(uint32_t &at, uint32_t &parity, uint32_t ring_end, uint32_t ring_bytes) {
  asm("{\n.reg .pred last;\nadd.u32 %0, %0, %2;\nsetp.eq.u32 last, %0, %3;\n@last sub.u32 %0, %0, %4;\n"
      "@last xor.b32 %1, %1, 1;\n}"
      : "+r"(at), "+r"(parity)
      : "r"(static_cast<uint32_t>(INT2_FEW_STAGE_BYTES)), "r"(ring_end), "r"(ring_bytes));
}

// Tiles of a pair that are still to be copied; all of it is the same for a warp.
template <bool kHalves> struct run_of_tiles {
  const uint8_t *from;
  uint32_t tile, tiles, row; // of the tiles that the rank has of block of rows `row`
  uint32_t block;            // of the cluster's
  uint32_t step;             // from tile to tile; of the half block two count as one
  int left;

  __device__ run_of_tiles(const work &w, int pair) {
    const int2_cut &cut = w.plan.cut;
    const int2_share mine = int2_cut_share(&cut, pairs, blockIdx.y, pair);
    block = mine.first_block;
    set_step(cut);
    tile = mine.begin - block * mine.tiles, tiles = mine.tiles;
    const uint32_t half = kHalves ? int2_cut_half(&cut, blockIdx.x, block) : 2 * (blockIdx.x * cut.blocks + block);
    // Rows behind the last are those of the last block once more.
    row = min(half / 2, cut.row_blocks - 1);
    from = static_cast<const uint8_t *>(w.product.tiles) +
           static_cast<uint64_t>(row * cut.tiles + mine.first_tile) * INT2_TILE_BYTES + tile * step +
           half % 2 * INT2_HALF_BYTES;
    left = mine.end - mine.begin;
  }
  __device__ void set_step(const int2_cut &cut) {
    step = kHalves && int2_cut_halved(&cut, block) ? 2 * INT2_TILE_BYTES : INT2_TILE_BYTES;
  }
  // By one lane; to: where the pair's tile is to lie. Halves of two tiles come to lie as those of one do.
  __device__ void copy(uint32_t to, uint32_t full, uint64_t policy) const {
    const bool halved = step != INT2_TILE_BYTES;
    ptx::copy_bulk(to, from, kHalves && halved ? INT2_HALF_BYTES : INT2_TILE_BYTES, full, policy);
    if (kHalves && halved)
      ptx::copy_bulk(to + INT2_HALF_BYTES, from + INT2_TILE_BYTES, INT2_HALF_BYTES, full, policy);
  }
  // Sums that the compiler keeps in registers that a warp has one of.
  __device__ void next(const int2_cut &cut) {
    left--;
    from += step;
    if (++tile == tiles) {
      const uint32_t before = row;
      row = row + 1 < cut.row_blocks ? row + 1 : row;
      block++, tile = 0;
      set_step(cut);
      if (kHalves && step != INT2_TILE_BYTES && blockIdx.x % 2 != 0) // the half one is ahead of the others
        row = blockIdx.x * cut.halves / 2, from += INT2_HALF_BYTES;
      from +=
          (static_cast<int>(row - before) * static_cast<int>(cut.tiles) - static_cast<int>(tiles)) * INT2_TILE_BYTES;
    }
  }
};

// Stages as far ahead as there is room. Behind the last comes one that is empty, so that nobody has to know which is
// the last. Only one is asked for before x: what comes to the block comes in order, and x is waited for first.
template <bool kHalves> __device__ inline void supply(const work &w, uint32_t ring, int warp) {
  static_assert(supplied == 2);
  const int2_cut &cut = w.plan.cut;
  run_of_tiles<kHalves> first(w, warp * supplied), second(w, warp * supplied + 1);
  const uint64_t policy = ptx::policy_evict_first();
  const bool leads = threadIdx.x % 32 == 0;
  const int last = (cut.halves * first.tiles + 2 * pairs - 1) / (2 * pairs);
  const uint32_t end = ring + w.plan.ring_bytes, to = warp * (supplied * INT2_TILE_BYTES);
  const uint32_t my_empty = empty + warp * 8;
  uint32_t at = ring, parity = 1; // of a barrier that nothing has come to, the phase before the first is complete
  const auto copy = [&] {
    ptx::barrier_wait(at + my_empty, parity);
    if (leads) {
      ptx::barrier_expect(at + full, ((first.left > 0) + (second.left > 0)) * INT2_TILE_BYTES);
      if (first.left > 0)
        first.copy(at + to, at + full, policy);
      if (second.left > 0)
        second.copy(at + to + INT2_TILE_BYTES, at + full, policy);
    }
    first.next(cut);
    second.next(cut);
    at += INT2_FEW_STAGE_BYTES;
    if (at == end)
      at = ring, parity ^= 1;
  };
  ptx::named_barrier_sync(ring_barrier, all_threads);
#pragma unroll 1
  for (int stage = 0; stage <= last; stage++) {
    copy();
    if (stage == 0)
      ptx::named_barrier_sync(asked_barrier, all_threads);
  }
}

// ---- the whole

// kHalves: clusters have an odd number of half blocks of rows.
template <typename X, int kEights, bool kHalves>
__global__ void __launch_bounds__(all_threads, 1) run(const __grid_constant__ work w) {
  constexpr int start_bytes = kEights * 64;
  extern __shared__ __align__(1024) uint8_t raw[];
  __shared__ int2_parts parts;
  ptx::let_next_grid_start();
  const int2_cut &cut = w.plan.cut;
  // The same for all lanes, and said to be: what follows from it is computed once a warp.
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), pair = warp / 2, half = warp % 2;
  const uint32_t x_at = ptx::shared_address(raw), ring_at = x_at + w.plan.x_bytes;
  // 16 columns take more registers than there are for each of so many threads.
  if (warp >= warps) {
    if constexpr (kEights == 2)
      ptx::registers_decrease<40>();
    supply<kHalves>(w, ring_at, warp - warps);
    return;
  }
  if constexpr (kEights == 2)
    ptx::registers_increase<104>();
  if (threadIdx.x % 32 == 0)
    make_barriers(w, ring_at, warp);
  __syncwarp();
  ptx::named_barrier_arrive(ring_barrier, all_threads);
  const uint32_t zero = ptx::unknown_zero(); // added to what is not to be computed again in the loop
  const int lane = threadIdx.x % 32 + zero, columns = w.plan.columns;
  const int2_share mine = int2_cut_share(&cut, pairs, blockIdx.y, pair);
  const int length = mine.tiles, all = mine.end - mine.begin, first = mine.begin - mine.first_block * mine.tiles;
  const uint32_t slots_at = ring_at + w.plan.ring_bytes;
  const int slot_bytes = columns * (pitch * 4);
  const uint32_t group_bytes = columns * 256;
  const uint32_t starts_at = x_at + length * group_bytes;

  // Parts of x that a thread has under way at a time, one turn after the other and in it all rows.
  constexpr int batch = 8;
  const int m = static_cast<int>(w.product.m), x_parts = sizeof(X) == 4 ? m : (m + 1) / 2;
  const int unit = x_part<X>::unit_of(lane);
  const uint8_t *const x_from =
      static_cast<const uint8_t *>(w.product.x) + mine.first_tile * (GEMM_GROUP * sizeof(X)) + unit * (8 * sizeof(X));
  const uint32_t x_stride = w.product.x_stride, numbers_at = x_at + unit / 8 * 128;
  struct {
    int group, part;
  } loaded = {2 * warp, 0}, stored = loaded;
  const auto next = [&](auto &at) {
    if (++at.part == x_parts)
      at.part = 0, at.group += 2 * warps;
  };
  // Of two, of which the second may not be there: then it is the first once more.
  const auto group_of = [&](int first_group) { return min(first_group + lane / 16, length - 1); };
  x_part<X> held[batch];
  const auto load = [&] {
#pragma unroll
    for (int i = 0; i < batch; i++)
      if (loaded.group < length) {
        held[i].load(x_from + group_of(loaded.group) * (GEMM_GROUP * sizeof(X)), x_stride, m, loaded.part);
        next(loaded);
      }
  };
  ptx::wait_for_previous_grid();
  load();
  ptx::named_barrier_arrive(asked_barrier, all_threads);
  int2_list_parts<pairs, threads>(cut, slots_at, slot_bytes, parts);
#pragma unroll 1
  while (stored.group < length) {
#pragma unroll
    for (int i = 0; i < batch; i++)
      if (stored.group < length) {
        const int group = group_of(stored.group);
        held[i].store({numbers_at + group * group_bytes, starts_at + group * start_bytes}, stored.part);
        next(stored);
      }
    load();
  }
  ptx::named_barrier_sync(consumer_barrier, threads);

  // Kept, not computed again in the loop, where every instruction counts.
  uint32_t exponents[int2_codes<X>::places];
#pragma unroll
  for (int i = 0; i < int2_codes<X>::places; i++)
    exponents[i] = int2_codes<X>::exponent(i) + zero;
  const uint32_t ring_bytes = w.plan.ring_bytes + zero, ring_end = ring_at + ring_bytes,
                 my_half = pair * INT2_TILE_BYTES + half * INT2_HALF_BYTES;
  uint32_t my_codes = my_half + lane * 16;
  const uint32_t my_empty = empty + pair / supplied * 8;
  uint32_t my_scales = my_half + INT2_HALF_SCALES + lane / 4 * 4;
  ptx::keep(my_codes);
  ptx::keep(my_scales);
  struct {
    int4 upper, lower;
    uint32_t upper_scales, lower_scales;
  } now;
  uint32_t at = ring_at, parity = 0;
  const auto take_tile = [&] {
    now = {ptx::load_shared_int4(at + my_codes), ptx::load_shared_int4(at + my_codes + INT2_UNIT_BYTES),
           ptx::load_shared(at + my_scales), ptx::load_shared(at + my_scales + 32)};
  };
  const operand_place x_first = operand_at(x_at, columns, lane);
  float sum[2][kEights][4] = {};
  ptx::barrier_wait(at + full, parity);
  take_tile();
  for (int slot = 0, tile = first, left = all; left > 0; slot++, tile = 0) {
    const bool halved = kHalves && int2_cut_halved(&cut, mine.first_block + slot);
    const int tiles_here = min(length - tile, left), group = halved ? 2 * tile + half : tile;
    const uint32_t x_step = halved ? 2 * group_bytes : group_bytes;
    const uint32_t starts_step = halved ? 2 * start_bytes : start_bytes;
    uint32_t starts = starts_at + group * start_bytes + lane % 4 * 16;
    operand_place x = {x_first.even + group * group_bytes, x_first.odd + group * group_bytes};
    const uint32_t x_end = x.even + tiles_here * x_step;
    left -= tiles_here;
#pragma unroll 1
    do {
      operand<kEights> b;
      float part[2][kEights][4], start[kEights][4];
      load_operand<kEights>(b, x, 0);
#pragma unroll
      for (int t = 0; t < kEights; t++) {
        const int4 four = ptx::load_shared_int4(starts + t * 64);
        start[t][0] = __int_as_float(four.x);
        start[t][1] = __int_as_float(four.y);
        start[t][2] = __int_as_float(four.z);
        start[t][3] = __int_as_float(four.w);
      }
      ptx::barrier_arrive(at + my_empty);
      advance(at, parity, ring_end, ring_bytes);
      multiply_unit<X, kEights>(part[0], now.upper.x, now.upper.y, b, start, exponents);
      multiply_unit<X, kEights>(part[1], now.lower.x, now.lower.y, b, start, exponents);
      load_operand<kEights>(b, x, 1);
      ptx::barrier_wait(at + full, parity); // for the next
      x.even += x_step, x.odd += x_step;
      starts += starts_step;
      multiply_unit<X, kEights>(part[0], now.upper.z, now.upper.w, b, part[0], exponents);
      multiply_unit<X, kEights>(part[1], now.lower.z, now.lower.w, b, part[1], exponents);
      add_scaled<kEights>(sum[0], part[0], now.upper_scales);
      add_scaled<kEights>(sum[1], part[1], now.lower_scales);
      take_tile();
    } while (x.even != x_end);
    float *const to = reinterpret_cast<float *>(raw + (slots_at - x_at + (pair * cut.slots + slot) * slot_bytes));
    store_sums<kEights, sizeof(X) == 4>(sum, to, columns, half, lane);
  }
  if (cut.split_log2 == 0) {
    ptx::named_barrier_sync(consumer_barrier, threads);
  } else {
    ptx::cluster_arrive();
    ptx::cluster_wait();
  }
  int2_write_y<threads, pitch, kHalves>(cut, w.product, parts, nullptr);
  if (cut.split_log2 > 0) { // nobody leaves while another reads its sums
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();
  }
}

} // namespace int2_few
