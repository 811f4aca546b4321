// The kernel of grouped_int2/config.h.
#pragma once

#include "make.cuh"

#include <type_traits>

namespace grouped_int2 {

// ---- copies of W, by a lane of each of some warps, which share the blocks of rows

__device__ inline void supply_w(const work &w, const places &to, int copier) {
  cursor at(w.plan.stages);
  const uint64_t policy = ptx::policy_evict_first();
  ptx::wait_for_previous_grid();
#pragma unroll 1
  for (run list(w); list.left > 0;) {
    const piece p = list.now();
    const int64_t block = static_cast<int64_t>(w.product.route.tiles[list.tile].expert) * w.row_blocks + p.first;
    const uint8_t *from = static_cast<const uint8_t *>(w.product.tiles) + block * w.plan.groups * INT2_TILE_BYTES;
    const int mine = (p.blocks - copier + copiers - 1) / copiers; // blocks
#pragma unroll 1
    for (int group = 0; group < w.plan.groups; group += p.parts, at.advance()) {
      const uint32_t bytes = min(p.parts, w.plan.groups - group) * INT2_TILE_BYTES, full = to.full(at.stage);
      ptx::barrier_wait(to.empty(at.stage), at.phase ^ 1);
      ptx::barrier_expect(full, mine * bytes);
      for (int b = copier; b < p.blocks; b += copiers)
        ptx::copy_bulk(to.ring + at.stage * stage_bytes + b * p.parts * INT2_TILE_BYTES,
                       from + static_cast<int64_t>(b * w.plan.groups + group) * INT2_TILE_BYTES, bytes, full, policy);
    }
    list.skip(p.blocks);
  }
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

// A warp's of a block of rows, for others to add up; zeros afterwards.
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

// y of a piece from the sums of its warps, those of a block of rows from the
// first on. `to`: of lane i, where the tile's row i of y is.
__device__ inline void write_y(const work &w, const experts_tile &tile, const piece &of, const float *sums, int to) {
  const grouped_int2_product &p = w.product;
  const int warp_floats = w.plan.rows * pitch;
  // A warp has half of a row of a block: all of its lanes take as many turns.
  for (int i = threadIdx.x / 32; i < 2 * of.blocks * tile.rows; i += warps) {
    const int block = i / (2 * tile.rows), row = (i - block * 2 * tile.rows) / 2,
              column = i % 2 * 32 + static_cast<int>(threadIdx.x % 32);
    const float *from = sums + block * of.parts * warp_floats + row * pitch + column;
    float sum = *from;
#pragma unroll 1
    for (int part = 1; part < of.parts; part++)
      sum += *(from += warp_floats);
    const int64_t n = (of.first + block) * INT2_BLOCK_ROWS + column;
    const float bias = p.bias ? number_load_as(p.bias, tile.expert * p.n + n, p.bias_type) : 0.0f;
    const int64_t row_of_y = __shfl_sync(0xffffffffu, to, row);
    number_store_as(static_cast<uint8_t *>(p.y) + row_of_y * p.y_stride, n, p.y_type, sum + bias);
  }
}

// The same of a block of rows that is all this warp's: it waits for no other.
__device__ inline void write_own(const work &w, const experts_tile &tile, int block, const float *sums, int to,
                                 int lane) {
  const grouped_int2_product &p = w.product;
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

  __device__ explicit tile_of_x(const work &w) : place(w, -1, 0) {}
  // The next one, once it has come.
  __device__ void take(const work &w, const places &from, bool splits, int which, int lane) {
    const grouped_int2_product &p = w.product;
    tile = p.route.tiles[which];
    place = x_place(w, place.number + 1, tile.rows);
    by = multiplier_place(w, from, place.row, tile.rows, lane);
    const int sorted = tile.first + min(lane, tile.rows - 1);
    to = p.y_sorted ? sorted : p.route.pair[sorted];
    ptx::barrier_wait(from.x_full(place.turn()), place.phase());
    unusual = splits || is_unusual(w, from, place.row, tile.rows, lane);
  }
};

// The tiles of a piece that are this warp's: of its block of rows every so many-th, one a stage. `after`: the group of
// K that it has first of the next piece.
template <bool kSplits, bool kMultiplied>
__device__ inline void multiply_piece(const work &w, warp_state &s, const places &from, const operand_place &x,
                                      const tile_of_x &t, const uint32_t (&a)[4], const piece &p, int after,
                                      float *sums, int warp, int lane) {
  const int groups = w.plan.groups, first = warp % p.parts, last = groups - 1;
  const bool mine = warp / p.parts < p.blocks;
#pragma unroll 1
  for (int group = first; group - first < groups; group += p.parts) {
    const int then = group - first + p.parts < groups ? group + p.parts : after;
    multiply_tile<kMultiplied>(s, from, x, t.by, a, min(group, last), min(then, last), mine && group < groups, warp,
                               lane);
  }
  leave_sums<kSplits>(s.sum, sums + warp * w.plan.rows * pitch, t.tile.rows, lane);
}

template <bool kSplits> __device__ inline void consume(const work &w, const places &from, float *sums) {
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  uint32_t a[4];
#pragma unroll
  for (int i = 0; i < 4; i++)
    a[i] = ptx::held(0x4000bc00); // f16 -1 and 2
  ptx::wait_for_previous_grid();
  const uint32_t column_bytes = w.plan.groups * GROUPED_INT2_X_BYTES;
  warp_state s(w.plan.stages);
  tile_of_x t(w);
  bool fresh = true;
  int turn = 0;
  run list(w);
  piece p = list.now();
  if (list.left > 0)
    s.take(from, warp, lane);
#pragma unroll 1
  while (list.left > 0) {
    if (fresh)
      t.take(w, from, kSplits, list.tile, lane);
    const int columns = w.plan.columns / w.plan.rows;
    const operand_place x(from.x + t.place.row * columns * column_bytes, column_bytes, columns * t.tile.rows,
                          kSplits ? lane / 4 : t.tile.first + lane / 4, lane);
    if (fresh)
      s.load_ahead(x, min(warp % p.parts, w.plan.groups - 1) * GROUPED_INT2_X_BYTES);
    float *const here = sums + turn * (w.plan.sums_bytes / 8);
    const piece of = p;
    const experts_tile tile = t.tile;
    fresh = list.skip(p.blocks);
    p = list.now();
    if (t.unusual)
      multiply_piece<kSplits, true>(w, s, from, x, t, a, of, warp % p.parts, here, warp, lane);
    else
      multiply_piece<kSplits, false>(w, s, from, x, t, a, of, warp % p.parts, here, warp, lane);
    if (fresh && lane == 0)
      ptx::barrier_arrive(from.x_empty(t.place.turn()));
    if (of.parts == 1) {
      if (warp < of.blocks)
        write_own(w, tile, of.first + warp, here + warp * w.plan.rows * pitch, t.to, lane);
      continue;
    }
    ptx::named_barrier_sync(piece_barrier, consumers);
    write_y(w, tile, of, here, t.to);
    turn ^= 1;
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
  else if (lane == 0)
    supply_w(w, at, warp - warps);
}

} // namespace grouped_int2
