// Kernel of int2_few/launch.h.
//
// Warps take a tile of 64 rows of W x 128 of K at a time; four more have tiles copied ahead. W is never unpacked: its
// words, as they lie in memory (int2/layout.h), are the metadata by which a sparse matrix instruction chooses among
// rows of its right operand. Two of K are four such rows, 0, x1, x2 and x1 + x2 in f16, whatever x's type; the left
// operand is a constant, -1 and 2 in turn. Of a half block of rows a warp takes two tiles at a time that follow each
// other along K.
//
// Two codes make metadata of every value and in every order. PTX promises results for indices that differ and ascend
// alone, so this is outside of what it promises: the hardware chooses for each number by itself, whatever the other's
// index, as measured on H100 and H200, for equal and descending ones in every place. Hence sm_90a only, silicon that
// does not change, and a trial when a device is opened (places.h).
//
// x1 + x2 is rounded: 2.0e-4 to 2.7e-4 of a row of y, up to 3.2e-4 of unusual rows of x, too much for f32 y. Where that
// is wanted, and for f32 x, a row of x takes two columns, multiples of 2^-10 of a group's power of two, whose sums are
// exact, and the rest. Then, and where f16 does not hold x, a group of a row is scaled by a power of two; sums of a
// group are multiplied by what makes up for it, and of groups with a number that is not finite by NaN.
#pragma once

#include "../../../device/number.cuh"
#include "../../../device/ptx.cuh"
#include "../../tiles.h"
#include "../int2/cut.cuh"
#include "../int2/layout.h"
#include "config.h"
#include "x.cuh"

#include <type_traits>

namespace int2_few {

constexpr int warps = INT2_FEW_WARPS, threads = 32 * warps;
constexpr int pitch = INT2_BLOCK_ROWS + 4;
constexpr int units = INT2_BLOCK_ROWS / INT2_UNIT_ROWS;
constexpr int ring_barrier = 1, asked_barrier = 2, consumer_barrier = 3;

struct work {
  tiles_product product;
  int2_few_plan plan;
  uint32_t rows_inverse; // 2^16 / m, rounded up
};

// ---- tiles under way

// Warps that only have tiles copied, each for some others, so that who computes is never held up by the copy engine.
constexpr int suppliers = 4, supplied = warps / suppliers, all_threads = threads + 32 * suppliers;

// Behind the tiles of a stage, one of each warp: barriers that they have come, and, of each supplier, that the lanes
// of its warps have taken theirs.
constexpr int full = warps * INT2_TILE_BYTES, barriers = 1 + suppliers;
static_assert(INT2_FEW_STAGE_BYTES >= full + 8 * barriers && INT2_FEW_STAGE_BYTES % INT2_FEW_ALIGN == 0);

// By a lane of each warp.
__device__ inline void make_barriers(const work &w, uint32_t ring, int warp) {
#pragma unroll 1
  for (uint32_t i = warp; i / barriers * INT2_FEW_STAGE_BYTES < w.plan.ring_bytes; i += warps)
    ptx::barrier_init(ring + i / barriers * INT2_FEW_STAGE_BYTES + full + i % barriers * 8,
                      i % barriers == 0 ? suppliers : supplied * 32);
  ptx::fence_barrier_init();
}

// Tiles of a warp that are still to be copied; all of it is the same for a warp.
template <bool kHalves> struct run_of_tiles {
  const uint8_t *from;
  uint32_t tile, tiles, row; // of the tiles that the rank has of block of rows `row`
  uint32_t block;            // of the cluster's
  uint32_t step;             // from tile to tile; of the half block two count as one
  int left;

  __device__ run_of_tiles(const work &w, int warp) {
    const int2_cut &cut = w.plan.cut;
    const int2_share mine = int2_cut_share(&cut, warps, blockIdx.y, warp);
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
  // By one lane; to: where the warp's tile is to lie. Halves of two tiles come to lie as those of one do.
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

// Stages as far ahead as there is room. Behind the last comes an empty one, so that nobody has to know which is the
// last. Only one is asked for before x: what comes to the block comes in order, and x is waited for first.
template <bool kHalves> __device__ inline void supply(const work &w, uint32_t ring, int warp) {
  static_assert(supplied == 2);
  const int2_cut &cut = w.plan.cut;
  run_of_tiles<kHalves> first(w, warp * supplied), second(w, warp * supplied + 1);
  const uint64_t policy = ptx::policy_evict_first();
  const bool leads = threadIdx.x % 32 == 0;
  const int all = (cut.halves * first.tiles + 2 * warps - 1) / (2 * warps) + 1;
  const uint32_t end = ring + w.plan.ring_bytes, to = warp * (supplied * INT2_TILE_BYTES);
  const uint32_t my_empty = full + 8 + warp * 8;
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
  for (int stage = 0; stage < all; stage++) {
    copy();
    if (stage == 0)
      ptx::named_barrier_sync(asked_barrier, all_threads);
  }
}

// ---- products

// Right operands under way, and how many of them are ahead of the one in use.
constexpr int buffers = 4, ahead = buffers - 1, steps = 8;

// Where a lane's part of a group and column lies, by (h ^ i / 2) % 2 and i % 2.
struct operand_place {
  uint32_t at[2][2];
  bool wanted; // by a lane of a column that there is

  __device__ operand_place(uint32_t x, int columns, int lane) {
    const int column = lane / 4;
    const uint32_t first = x + column * INT2_FEW_X_BYTES + column % 2 * 64 + lane % 4 * 16;
    wanted = column < columns;
#pragma unroll
    for (int i = 0; i < 4; i++)
      at[i / 2][i % 2] = first ^ (i / 2 * 64 + i % 2 * 16);
  }
  __device__ void advance(uint32_t bytes) {
#pragma unroll
    for (int i = 0; i < 4; i++)
      at[i / 2][i % 2] += bytes;
  }
  // more: bytes further on.
  __device__ void load(uint32_t (&out)[4], int step, uint32_t more) const {
    const int i = step / 2, h = step % 2;
    ptx::load_shared_int4_if(out, at[(h ^ i / 2) % 2][i % 2] + i * 128 + more, wanted);
  }
};

// A lane's of a tile.
struct tile_words {
  uint32_t codes[units][4], scales[units];

  __device__ void load(uint32_t codes_at, uint32_t scales_at) {
#pragma unroll
    for (int u = 0; u < units; u++) {
      const uint32_t half = u / 2 * INT2_HALF_BYTES;
      const int4 four = ptx::load_shared_int4(codes_at + half + u % 2 * INT2_UNIT_BYTES);
      codes[u][0] = four.x, codes[u][1] = four.y, codes[u][2] = four.z, codes[u][3] = four.w;
      scales[u] = ptx::load_shared(scales_at + half + u % 2 * (INT2_UNIT_ROWS * 2));
    }
  }
};

// Tiles that a warp takes, as they come.
struct tile_ring {
  uint32_t at, parity, end, bytes; // at: of the stage
  uint32_t codes, scales, empty;   // in a stage

  __device__ tile_ring(uint32_t ring, uint32_t ring_bytes, int warp, int lane)
      : at(ring), parity(0), end(ring + ring_bytes), bytes(ring_bytes), codes(warp * INT2_TILE_BYTES + lane * 16),
        scales(warp * INT2_TILE_BYTES + INT2_HALF_SCALES + lane / 4 * 4), empty(full + 8 + warp / supplied * 8) {
    ptx::keep(codes);
    ptx::keep(scales);
  }
  __device__ void take(tile_words &out) const {
    ptx::barrier_wait(at + full, parity);
    out.load(at + codes, at + scales);
  }
  __device__ void give_back() const {
    ptx::barrier_arrive(at + empty);
  }
  // Behind the last stage comes the first, in the phase of the other parity. By instructions that are left out, where
  // the compiler computes both and selects.
  __device__ void advance() {
    asm("{\n.reg .pred last;\nadd.u32 %0, %0, %2;\nsetp.ge.u32 last, %0, %3;\n@last sub.u32 %0, %0, %4;\n"
        "@last xor.b32 %1, %1, 1;\n}"
        : "+r"(at), "+r"(parity)
        : "r"(static_cast<uint32_t>(INT2_FEW_STAGE_BYTES)), "r"(end), "r"(bytes));
  }
};

// Tiles of one block of rows, the first of which is in `now`, where the next one is left. x: of its groups; a: the left
// operand. kHalved: of a half block, rows of two groups each; kMultiplied: by the groups' multipliers.
template <bool kHalved, bool kMultiplied>
__device__ inline void multiply_tiles(float (&sum)[units][4], tile_words &now, tile_ring &ring, operand_place x,
                                      const uint32_t (&a)[4], uint32_t multiplier, int columns, int count) {
  constexpr int parts = kHalved ? 2 : 1;
  constexpr float zeros[4] = {};
  const uint32_t group_bytes = columns * INT2_FEW_X_BYTES, multiplier_bytes = max(columns, 2) * 4;
  uint32_t b[buffers][parts][4] = {};
  const auto load = [&](int step) {
#pragma unroll
    for (int p = 0; p < parts; p++)
      x.load(b[step % buffers][p], step, p * group_bytes);
  };
#pragma unroll
  for (int step = 0; step < ahead; step++)
    load(step);
#pragma unroll 1
  do {
    float part[units][4];
    float2 scale[units], by[parts];
#pragma unroll
    for (int u = 0; u < units; u++)
      scale[u] = floats_of<__half>(now.scales[u]);
    if constexpr (kMultiplied) {
#pragma unroll
      for (int p = 0; p < parts; p++) {
        const uint2 two = ptx::load_shared_uint2(multiplier + p * multiplier_bytes);
        by[p] = {__uint_as_float(two.x), __uint_as_float(two.y)};
      }
      multiplier += parts * multiplier_bytes;
    }
#pragma unroll
    for (int step = 0; step < steps; step++) {
      if (step == steps - ahead)
        x.advance(parts * group_bytes); // behind the last there is something, which is not used
      load((step + ahead) % steps);
#pragma unroll
      for (int u = 0; u < units; u++) {
        const auto &c = step == 0 ? zeros : static_cast<const float(&)[4]>(part[u]);
        if (step % 2 == 0)
          ptx::mma_sparse_f16<0>(part[u], a, b[step % buffers][u * parts / units], c, now.codes[u][step / 2]);
        else
          ptx::mma_sparse_f16<1>(part[u], a, b[step % buffers][u * parts / units], c, now.codes[u][step / 2]);
      }
      if (step == 0)
        ring.give_back();
    }
    ring.advance();
    ring.take(now);
#pragma unroll
    for (int u = 0; u < units; u++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        if constexpr (kMultiplied)
          part[u][i] *= i % 2 ? by[u * parts / units].y : by[u * parts / units].x;
        sum[u][i] = fmaf(part[u][i], i < 2 ? scale[u].x : scale[u].y, sum[u][i]);
      }
    }
  } while (--count > 0);
}

// ---- sums to y

// Those of a block of rows, `count` units, and of the plan's columns.
template <bool kSplit>
__device__ inline void store_sums(float (&sum)[units][4], float *slot, int count, int columns, int lane) {
  const int column = lane % 4 * 2, row = kSplit ? lane % 4 : column;
  float *const at = slot + row * pitch + lane / 4;
#pragma unroll
  for (int u = 0; u < units; u++) {
    float *const d = sum[u];
    if (u < count && column < columns) {
      at[16 * u] = kSplit ? d[0] + d[1] : d[0];
      at[16 * u + 8] = kSplit ? d[2] + d[3] : d[2];
      if (!kSplit && column + 1 < columns) {
        at[16 * u + pitch] = d[1];
        at[16 * u + pitch + 8] = d[3];
      }
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
      d[i] = 0.0f;
  }
}

// ---- the whole

// Items of x, four groups of a row each, are the block's warps', one after the other.
struct x_items {
  const uint8_t *from; // the lane's numbers of the rank's first group
  uint32_t stride, inverse;
  int rows, tiles, count, group_bytes;

  template <typename X>
  __device__ x_items(const work &w, const int2_share &mine, int lane, X)
      : from(static_cast<const uint8_t *>(w.product.x) + (mine.first_tile * GEMM_GROUP + lane % 8 * 16) * sizeof(X)),
        stride(w.product.x_stride), inverse(w.rows_inverse), rows(w.product.m), tiles(mine.tiles),
        count((mine.tiles + 3) / 4 * w.product.m), group_bytes(GEMM_GROUP * sizeof(X)) {}
  __device__ int row(int item) const {
    return item - (item * inverse >> 16) * rows;
  }
  // Behind the last it is the last once more.
  __device__ int group(int item, int lane) const {
    return min(static_cast<int>(item * inverse >> 16) * 4 + lane / 8, tiles - 1);
  }
  __device__ const uint8_t *at(int item, int lane) const {
    return from + group(item, lane) * group_bytes + row(item) * stride;
  }
};

// Where a block keeps x and what comes of it, in shared memory.
struct x_room {
  uint32_t x, multipliers, slots;                     // addresses
  uint32_t group_bytes, multiplier_bytes, slot_bytes; // of a group of x, of its multipliers, of a slot of sums
};

// x of the rank's groups to shared memory, and which parts of y the block has to add up. Behind the first loads the
// suppliers are let go. True where products are to be multiplied by the groups' multipliers.
template <typename X, bool kSplits>
__device__ __forceinline__ bool stage_x(const work &w, const int2_share &mine, const x_room &room, int warp, int lane,
                                        int2_parts &parts) {
  using part = x_part<X, kSplits>;
  // Parts of x that a thread has under way at a time.
  constexpr int batch = kSplits ? 4 : 8;
  const x_items items(w, mine, lane, X());
  part held[batch];
  const auto load = [&](int item) {
#pragma unroll
    for (int i = 0; i < batch; i++, item += warps)
      if (item < items.count)
        held[i].load(items.at(item, lane));
  };
  const auto column_at = [&](int item, int column) {
    return room.x + items.group(item, lane) * room.group_bytes + column * INT2_FEW_X_BYTES + part::place(lane, column);
  };
  // With its multiplier.
  const auto store_scaled = [&](const part &numbers, int item) {
    const int row = items.row(item), column = kSplits ? 2 * row : row;
    const float by = numbers.store_scaled(column_at(item, column), column_at(item, column + 1));
    if (lane % 8 == 0) {
      const uint32_t to = room.multipliers + items.group(item, lane) * room.multiplier_bytes + column * 4;
      ptx::store_shared(to, __float_as_uint(by));
      if (kSplits)
        ptx::store_shared(to + 4, __float_as_uint(by));
    }
  };
  ptx::wait_for_previous_grid();
  load(warp);
  ptx::named_barrier_arrive(asked_barrier, all_threads);
  int2_list_parts<warps, threads>(w.plan.cut, room.slots, room.slot_bytes, parts);
  x_doubts doubts;
#pragma unroll 1
  for (int item = warp; item < items.count; item += batch * warps) {
#pragma unroll
    for (int i = 0; i < batch; i++) {
      const int stored = item + i * warps;
      if (stored < items.count) {
        if constexpr (kSplits)
          store_scaled(held[i], stored);
        else
          held[i].store(column_at(stored, items.row(stored)), doubts);
      }
    }
    load(item + batch * warps);
  }
  bool multiplied = kSplits;
  if constexpr (kSplits) {
    ptx::named_barrier_sync(consumer_barrier, threads);
  } else {
    multiplied = ptx::named_barrier_or(consumer_barrier, threads, doubts.over() || doubts.small);
    if (multiplied) {
#pragma unroll 1
      for (int item = warp; item < items.count; item += warps) {
        held[0].load(items.at(item, lane));
        store_scaled(held[0], item);
      }
      ptx::named_barrier_sync(consumer_barrier, threads);
    }
  }
  return multiplied;
}

// kSplits: a row of x takes two columns; kHalves: clusters have an odd number of half blocks of rows.
template <typename X, bool kSplits, bool kHalves>
__global__ void __launch_bounds__(all_threads, 1) run(const __grid_constant__ work w) {
  extern __shared__ __align__(1024) uint8_t raw[];
  __shared__ int2_parts parts;
  ptx::let_next_grid_start();
  const int2_cut &cut = w.plan.cut;
  // The same for all lanes, and said to be: what follows from it is computed once a warp.
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
  const uint32_t x_at = ptx::shared_address(raw), ring_at = x_at + w.plan.x_bytes;
  if (warp >= warps) {
    supply<kHalves>(w, ring_at, warp - warps);
    return;
  }
  if (threadIdx.x % 32 == 0)
    make_barriers(w, ring_at, warp);
  __syncwarp();
  ptx::named_barrier_arrive(ring_barrier, all_threads);
  const uint32_t zero = ptx::unknown_zero(); // added to what is not to be computed again in the loop
  const int lane = threadIdx.x % 32 + zero, columns = w.plan.columns;
  const int2_share mine = int2_cut_share(&cut, warps, blockIdx.y, warp);
  const uint32_t slots_at = ring_at + w.plan.ring_bytes, slot_bytes = columns * (pitch * 4);
  const uint32_t group_bytes = columns * INT2_FEW_X_BYTES, multiplier_bytes = max(columns, 2) * 4;
  const uint32_t multipliers_at = x_at + mine.tiles * group_bytes;

  const bool multiplied = stage_x<X, kSplits>(
      w, mine, {x_at, multipliers_at, slots_at, group_bytes, multiplier_bytes, slot_bytes}, warp, lane, parts);
  tile_ring ring(ring_at, w.plan.ring_bytes + zero, warp, lane);
  const operand_place x_first(x_at, columns, lane);
  uint32_t a[4];
#pragma unroll
  for (int i = 0; i < 4; i++)
    a[i] = ptx::held(0x4000bc00); // f16 -1 and 2
  float sum[units][4] = {};
  tile_words now;
  ring.take(now);
  const auto products = [&](auto scaled) {
    constexpr bool kMultiplied = decltype(scaled)::value;
    int tile = mine.begin - mine.first_block * mine.tiles, left = mine.end - mine.begin;
    uint32_t slot = int2_cut_slot(&cut, &mine, warp, mine.first_block);
    for (int block = mine.first_block; left > 0; block++, slot++, tile = 0) {
      const bool halved = kHalves && int2_cut_halved(&cut, block);
      const int count = min(mine.tiles - tile, left), first = halved ? 2 * tile : tile;
      operand_place x = x_first;
      x.advance(first * group_bytes);
      const uint32_t multiplier =
          multipliers_at + first * multiplier_bytes + min(lane % 4 * 2, max(columns, 2) - 2) * 4;
      left -= count;
      if (kHalves && halved) {
        multiply_tiles<true, kMultiplied>(sum, now, ring, x, a, multiplier, columns, count);
#pragma unroll
        for (int i = 0; i < 4; i++)
          sum[0][i] += sum[2][i], sum[1][i] += sum[3][i];
      } else {
        multiply_tiles<false, kMultiplied>(sum, now, ring, x, a, multiplier, columns, count);
      }
      store_sums<kSplits>(sum, reinterpret_cast<float *>(raw + (slots_at - x_at + slot * slot_bytes)),
                          kHalves && halved ? units / 2 : units, columns, lane);
    }
  };
  if (kSplits || multiplied)
    products(std::true_type());
  else
    products(std::false_type());
  int2_await_sums<consumer_barrier, threads>(cut);
  int2_write_y<threads, pitch, kHalves>(cut, w.product, parts, nullptr);
  int2_await_readers(cut);
}

} // namespace int2_few
