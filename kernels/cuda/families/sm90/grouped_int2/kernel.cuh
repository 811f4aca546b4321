// The kernel of grouped_int2/config.h.
#pragma once

#include "make.cuh"

#include <type_traits>

namespace grouped_int2 {

// ---- copies of W, by some warps, a lane of which asks for them

__device__ inline void supply_w(const work &w, const places &to, int copier, int lane) {
  cursor at(w.plan.stages);
  const uint64_t policy = ptx::policy_evict_first();
  ptx::wait_for_previous_grid();
#pragma unroll 1
  for (run list(w); list.left > 0;) {
    const piece p = list.now();
    const int64_t block = static_cast<int64_t>(list.tile_of_x(w).expert) * w.row_blocks + p.first;
    const uint8_t *from = static_cast<const uint8_t *>(w.product.tiles) + block * w.plan.groups * INT2_TILE_BYTES;
    list.advance(p.blocks);
    if (lane > 0)
      continue;
    constexpr int each = warps / copiers;
    const uint8_t *of[each]; // warps
#pragma unroll
    for (int i = 0; i < each; i++)
      of[i] = from + static_cast<int64_t>(p.begin(copier * each + i)) * INT2_TILE_BYTES;
    const int rounds = p.rounds(), whole = p.rounds_of_all();
#pragma unroll 1
    for (int round = 0; round < rounds; round++, at.advance()) {
      const uint32_t full = to.full(at.stage),
                     ring = to.ring + at.stage * stage_bytes + copier * each * INT2_TILE_BYTES;
      unsigned goes = (1 << each) - 1;
      if (round >= whole) { // the last may be without some warps
        goes = 0;
#pragma unroll
        for (int i = 0; i < each; i++)
          goes |= (p.begin(copier * each + i) + round < p.begin(copier * each + i + 1)) << i;
      }
      ptx::barrier_wait(to.empty(at.stage), at.phase ^ 1);
      ptx::barrier_expect(full, __popc(goes) * INT2_TILE_BYTES);
#pragma unroll
      for (int i = 0; i < each; i++) {
        if (goes >> i & 1)
          ptx::copy_bulk(ring + i * INT2_TILE_BYTES, of[i], INT2_TILE_BYTES, full, policy);
        of[i] += INT2_TILE_BYTES;
      }
    }
  }
  if (lane > 0)
    return;
  // An empty stage behind the last, so that nobody has to know which is the last.
  ptx::barrier_wait(to.empty(at.stage), at.phase ^ 1);
  ptx::barrier_arrive(to.full(at.stage));
}

// ---- products

constexpr int units = INT2_BLOCK_ROWS / INT2_UNIT_ROWS, steps = 8;
constexpr int buffers = 4, ahead = buffers - 1; // right operands under way

// Where a lane's part of x lies, by (h ^ i / 2) % 2 and i % 2; see
// int2_few/x.cuh.
struct operand_place {
  uint32_t at[2][2];
  bool wanted; // by a lane of a column that there is

  __device__ operand_place(uint32_t x, uint32_t column_bytes, int columns, int odd, int lane) {
    const int column = lane / 4;
    const uint32_t first = x + column * column_bytes + odd % 2 * 64 + lane % 4 * 16;
    wanted = column < columns;
#pragma unroll
    for (int i = 0; i < 4; i++)
      at[i / 2][i % 2] = first ^ (i / 2 * 64 + i % 2 * 16);
  }
  // Of the group that begins `more` bytes further on.
  __device__ void load(uint32_t (&out)[4], int step, uint32_t more) const {
    const int i = step / 2, h = step % 2;
    ptx::load_shared_int4_if(out, at[(h ^ i / 2) % 2][i % 2] + i * 128 + more, wanted);
  }
};

// A lane's of a tile of W.
struct tile_words {
  uint32_t codes[units][4], scales[units];

  __device__ void load(uint32_t tile, int lane) {
#pragma unroll
    for (int u = 0; u < units; u++) {
      const uint32_t half = tile + u / 2 * INT2_HALF_BYTES;
      const int4 four = ptx::load_shared_int4(half + u % 2 * INT2_UNIT_BYTES + lane * 16);
      codes[u][0] = four.x, codes[u][1] = four.y, codes[u][2] = four.z, codes[u][3] = four.w;
      scales[u] = ptx::load_shared(half + INT2_HALF_SCALES + u % 2 * (INT2_UNIT_ROWS * 2) + lane / 4 * 4);
    }
  }
};

// By what sums of a lane's two columns are multiplied, of rows that are
// unusual.
struct multiplier_place {
  uint32_t at[2] = {};

  multiplier_place() = default;
  // `first`: of the tile's rows there.
  __device__ multiplier_place(const work &w, const places &from, int first, int rows, int lane) {
    const int split = w.plan.columns / w.plan.rows;
#pragma unroll
    for (int i = 0; i < 2; i++)
      at[i] =
          from.multipliers + (first + min((lane % 4 * 2 + i) / split, rows - 1)) * w.plan.multipliers * sizeof(float);
  }
  __device__ float2 load(int group) const {
    return {__uint_as_float(ptx::load_shared(at[0] + group * 4)), __uint_as_float(ptx::load_shared(at[1] + group * 4))};
  }
};

// What a warp has of a stage: W's words of its tile, which were taken while the
// one before was multiplied, and x of the first steps.
struct warp_state {
  tile_words now;
  uint32_t b[buffers][4] = {};
  float sum[units][4] = {};
  cursor at;

  __device__ explicit warp_state(int stages) : at(stages) {}
  __device__ void take(const places &from, int warp, int lane) {
    ptx::barrier_wait(from.full(at.stage), at.phase);
    now.load(from.ring + at.stage * stage_bytes + warp * INT2_TILE_BYTES, lane);
  }
  // x of the first steps of a group, which begins `more` bytes further on.
  __device__ void load_ahead(const operand_place &x, uint32_t more) {
#pragma unroll
    for (int step = 0; step < ahead; step++)
      x.load(b[step], step, more);
  }
};

// The tile that the warp has taken, of K's group `group`; what it takes then is
// of group `next`. kMultiplied: by the rows' multipliers. `wanted`: a stage may
// have none of the warp's.
template <bool kMultiplied>
__device__ inline void multiply_tile(warp_state &s, const places &from, const operand_place &x,
                                     const multiplier_place &by, const uint32_t (&a)[4], int group, int next,
                                     bool wanted, int warp, int lane) {
  constexpr float zeros[4] = {};
  float part[units][4];
  float2 scale[units], more = {1.0f, 1.0f};
#pragma unroll
  for (int u = 0; u < units; u++)
    scale[u] = __half22float2(reinterpret_cast<const __half2 &>(s.now.scales[u]));
  if constexpr (kMultiplied)
    more = by.load(group);
#pragma unroll
  for (int step = 0; step < steps; step++) {
    const int then = step + ahead;
    x.load(s.b[then % buffers], then % steps, (then < steps ? group : next) * GROUPED_INT2_X_BYTES);
#pragma unroll
    for (int u = 0; u < units; u++) {
      const auto &c = step == 0 ? zeros : static_cast<const float(&)[4]>(part[u]);
      if (step % 2 == 0)
        ptx::mma_sparse_f16<0>(part[u], a, s.b[step % buffers], c, s.now.codes[u][step / 2]);
      else
        ptx::mma_sparse_f16<1>(part[u], a, s.b[step % buffers], c, s.now.codes[u][step / 2]);
    }
    if (step == 0)
      ptx::barrier_arrive(from.empty(s.at.stage));
  }
  s.at.advance();
  s.take(from, warp, lane);
  if (!wanted)
    return;
#pragma unroll
  for (int u = 0; u < units; u++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if constexpr (kMultiplied)
        part[u][i] *= i % 2 ? more.y : more.x;
      s.sum[u][i] = fmaf(part[u][i], i < 2 ? scale[u].x : scale[u].y, s.sum[u][i]);
    }
  }
}

// ---- sums to y

// A warp's of a block of rows; zeros afterwards.
template <bool kSplits> __device__ inline void leave_sums(float (&sum)[units][4], float *to, int rows, int lane) {
  const int row = kSplits ? lane % 4 : lane % 4 * 2;
  float *const at = to + row * pitch + lane / 4;
#pragma unroll
  for (int u = 0; u < units; u++) {
    float *const d = sum[u];
    if (row < rows) {
      at[16 * u] = kSplits ? d[0] + d[1] : d[0];
      at[16 * u + 8] = kSplits ? d[2] + d[3] : d[2];
      if (!kSplits && row + 1 < rows) {
        at[16 * u + pitch] = d[1];
        at[16 * u + pitch + 8] = d[3];
      }
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
      d[i] = 0.0f;
  }
}

// Where a warp leaves sums of a block of rows that it has not all of: of its first one of the piece, or of its last.
__device__ inline float *slot_of(const work &w, float *sums, int warp, bool first) {
  return sums + (2 * warp + !first) * w.plan.rows * pitch;
}

// y of the block of rows that this warp begins and others end, if there is one: sums in the order of K. `to`: of lane
// i, where the tile's row i of y is.
__device__ inline void write_shared(const work &w, const experts_tile &tile, const piece &of, float *sums, int to,
                                    int warp, int lane) {
  const tiles_product &p = w.product;
  // The block of the next warp's first tile, if this one has its first.
  const int block = of.block(warp + 1), begin = block * of.groups, end = begin + of.groups;
  if (warp + 1 == warps || of.begins_block(warp + 1) || of.begin(warp) > begin || of.begin(warp) == of.begin(warp + 1))
    return;
  const int64_t n = (of.first + block) * INT2_BLOCK_ROWS + lane;
#pragma unroll 1
  for (int row = 0; row < tile.rows; row++) {
    float sum[2] = {};
#pragma unroll 1
    for (int other = warp; other < warps && of.begin(other) < end; other++) {
      const float *const from = slot_of(w, sums, other, of.block(other) == block) + row * pitch + lane;
      const bool any = of.begin(other) < of.begin(other + 1);
#pragma unroll
      for (int i = 0; i < 2; i++)
        sum[i] += any ? from[32 * i] : 0.0f;
    }
    const int64_t row_of_y = __shfl_sync(0xffffffffu, to, row);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const float bias = p.bias ? number_load_as(p.bias, tile.expert * p.n + n + 32 * i, p.bias_type) : 0.0f;
      number_store_as(static_cast<uint8_t *>(p.y) + row_of_y * p.y_stride, n + 32 * i, p.y_type, sum[i] + bias);
    }
  }
}

// The same of a block of rows that is all this warp's: it waits for no other.
__device__ inline void write_own(const work &w, const experts_tile &tile, int block, const float *sums, int to,
                                 int lane) {
  const tiles_product &p = w.product;
  const int64_t n = block * INT2_BLOCK_ROWS + lane;
  float bias[2] = {};
#pragma unroll
  for (int i = 0; i < 2; i++)
    bias[i] = p.bias ? number_load_as(p.bias, tile.expert * p.n + n + 32 * i, p.bias_type) : 0.0f;
  __syncwarp();
#pragma unroll 1
  for (int row = 0; row < tile.rows; row++) {
    const int64_t row_of_y = __shfl_sync(0xffffffffu, to, row);
    uint8_t *const y = static_cast<uint8_t *>(p.y) + row_of_y * p.y_stride;
#pragma unroll
    for (int i = 0; i < 2; i++)
      number_store_as(y, n + 32 * i, p.y_type, sums[row * pitch + lane + 32 * i] + bias[i]);
  }
  __syncwarp();
}

// Whether one of the tile's rows, of which the first lies there, has a multiplier that is not one.
__device__ inline bool is_unusual(const work &w, const places &from, int first, int rows, int lane) {
  bool any = false;
  for (int row = first; row < first + rows; row++)
    for (int group = lane; group < w.plan.groups; group += 32)
      any |= ptx::load_shared(from.multipliers + (row * w.plan.multipliers + group) * 4) != __float_as_uint(1.0f);
  return __any_sync(0xffffffffu, any);
}

// A tile of x as a warp reads it.
struct tile_of_x {
  experts_tile tile = {};
  x_place place;
  multiplier_place by;
  int to = 0; // of lane i: where the tile's row i of y is
  bool unusual = false;

  __device__ explicit tile_of_x(const work &w) : place(w.plan.rows, -1, 0) {}
  // The next one, once it has come.
  __device__ void take(const work &w, const places &from, bool splits, const run &list, int lane) {
    const tiles_product &p = w.product;
    tile = list.tile_of_x(w);
    place = x_place(w.plan.rows, place.number + 1, tile.rows);
    by = multiplier_place(w, from, place.row, tile.rows, lane);
    const int sorted = tile.first + min(lane, tile.rows - 1);
    to = p.y_sorted ? sorted : p.route.pair[sorted];
    ptx::barrier_wait(from.x_full(place.turn()), place.phase());
    unusual = splits || is_unusual(w, from, place.row, tile.rows, lane);
  }
};

// The tiles of W of a piece that are this warp's, one a stage. A block of rows that begins and ends here is written;
// what the warp has of others is left for write_shared.
template <bool kSplits, bool kMultiplied>
__device__ inline void multiply_piece(const work &w, warp_state &s, const places &from, const operand_place &x,
                                      const tile_of_x &t, const uint32_t (&a)[4], const piece &p, float *sums, int warp,
                                      int lane) {
  const int first = p.begin(warp), count = p.begin(warp + 1) - first, rounds = p.rounds();
  const int first_block = p.block(warp);
  int block = first_block, group = first - block * p.groups;
  bool whole = group == 0;
#pragma unroll 1
  for (int round = 0; round < rounds; round++) {
    const bool mine = round < count;
    const int next = group + 1 < p.groups ? group + 1 : 0;
    multiply_tile<kMultiplied>(s, from, x, t.by, a, group, next, mine, warp, lane);
    group = next;
    if (!mine || (next > 0 && round + 1 < count))
      continue;
    whole &= next == 0;
    float *const to = slot_of(w, sums, warp, block == first_block && !whole);
    leave_sums<kSplits>(s.sum, to, t.tile.rows, lane);
    if (whole)
      write_own(w, t.tile, p.first + block, to, t.to, lane);
    block++;
    whole = true;
  }
}

template <bool kSplits> __device__ inline void consume(const work &w, const places &from, float *sums) {
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  uint32_t a[4];
#pragma unroll
  for (int i = 0; i < 4; i++)
    a[i] = ptx::held(0x4000bc00); // f16 -1 and 2
  ptx::wait_for_previous_grid();
  const uint32_t column_bytes = w.plan.groups * GROUPED_INT2_X_BYTES;
  const int columns = w.plan.columns / w.plan.rows;
  warp_state s(w.plan.stages);
  tile_of_x t(w);
  run list(w);
  bool fresh = false; // the tile of x
  if (list.left > 0) {
    t.take(w, from, kSplits, list, lane); // while W is under way
    s.take(from, warp, lane);
  }
#pragma unroll 1
  while (list.left > 0) {
    const piece p = list.now();
    if (fresh)
      t.take(w, from, kSplits, list, lane);
    const operand_place x(from.x + t.place.row * columns * column_bytes, column_bytes, columns * t.tile.rows,
                          kSplits ? lane / 4 : t.tile.first + lane / 4, lane);
    s.load_ahead(x, (p.begin(warp) - p.block(warp) * p.groups) * GROUPED_INT2_X_BYTES);
    fresh = list.advance(p.blocks);
    if (t.unusual)
      multiply_piece<kSplits, true>(w, s, from, x, t, a, p, sums, warp, lane);
    else
      multiply_piece<kSplits, false>(w, s, from, x, t, a, p, sums, warp, lane);
    if (fresh && lane == 0)
      ptx::barrier_arrive(from.x_empty(t.place.turn()));
    if (p.blocks % warps == 0) // each block of rows is one warp's
      continue;
    ptx::named_barrier_sync(piece_barrier, consumers);
    write_shared(w, t.tile, p, sums, t.to, warp, lane);
    ptx::named_barrier_sync(piece_barrier, consumers); // before sums of the next piece are left there
  }
}

template <typename X, bool kSplits>
__global__ void __launch_bounds__(threads, 1) multiply(const __grid_constant__ work w) {
  extern __shared__ __align__(1024) uint8_t raw[];
  const places at(w, ptx::shared_address(raw));
  if (threadIdx.x == 0) {
    for (int i = 0; i < w.plan.stages; i++) {
      ptx::barrier_init(at.full(i), copiers);
      ptx::barrier_init(at.empty(i), consumers);
    }
    for (int i = 0; i < 2; i++) {
      ptx::barrier_init(at.x_full(i), 32 * makers);
      ptx::barrier_init(at.x_empty(i), warps);
    }
    ptx::fence_barrier_init();
  }
  __syncthreads();
  ptx::let_next_grid_start();
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  if (warp < warps)
    consume<kSplits>(w, at, reinterpret_cast<float *>(raw + (at.sums - at.x)));
  else if (warp >= warps + copiers)
    make_tiles<X, kSplits>(w, at, warp - warps - copiers, lane);
  else
    supply_w(w, at, warp - warps, lane);
}

} // namespace grouped_int2
