// The kernel of grouped_int4/config.h.
#pragma once

#include "../int4_few/kernel.cuh"
#include "make.cuh"

namespace grouped_int4 {

// x is f16 in shared memory, whatever it comes as: 4-bit codes become that in the fewest instructions.
using x_type = __half;

// ---- copies of W, by a lane of each of some warps, for every so many-th of those that multiply

template <typename Shape> __device__ inline void supply_w(const work &w, const places &to, int copier) {
  constexpr int each = Shape::warps / copiers;
  using form = typename Shape::form;
  cursor at(w.plan.stages);
  const int tiles = w.plan.tiles;
  ptx::wait_for_previous_grid();
#pragma unroll 1
  for (run list(w); list.left > 0;) {
    const piece p = list.now();
    const experts_tile tile = w.product.route.tiles[list.tile];
    const uint64_t policy = tile.alone ? ptx::policy_evict_first() : ptx::policy_evict_normal();
    const uint8_t *from[each]; // of a warp's first half tile
    int first[each];           // of K
#pragma unroll
    for (int i = 0; i < each; i++) {
      const int warp = copiers * i + copier, block = warp / p.parts;
      const int64_t half = static_cast<int64_t>(tile.expert) * w.row_blocks + p.first + block;
      first[i] = block < p.blocks ? warp % p.parts : tiles;
      from[i] = static_cast<const uint8_t *>(w.product.tiles) + half / 2 * tiles * form::tile_bytes +
                half % 2 * form::half_bytes;
    }
#pragma unroll 1
    for (int group = 0; group < tiles; group += p.parts, at.advance()) {
      const uint32_t full = to.full(at.stage), stage = to.ring + at.stage * Shape::stage_bytes;
      int wanted = 0;
#pragma unroll
      for (int i = 0; i < each; i++)
        wanted += group + first[i] < tiles;
      ptx::barrier_wait(to.empty(at.stage), at.phase ^ 1);
      ptx::barrier_expect(full, wanted * form::half_bytes);
#pragma unroll
      for (int i = 0; i < each; i++)
        if (group + first[i] < tiles)
          ptx::copy_bulk(stage + (copiers * i + copier) * form::half_bytes,
                         from[i] + static_cast<int64_t>(group + first[i]) * form::tile_bytes, form::half_bytes, full,
                         policy);
    }
    list.skip(p.blocks);
  }
  // An empty stage behind the last, so that nobody has to know which is the last.
  ptx::barrier_wait(to.empty(at.stage), at.phase ^ 1);
  ptx::barrier_arrive(to.full(at.stage));
}

// ---- products

// What a warp has of a stage: W's words of its half tile, which were taken while the one before was multiplied.
template <typename Shape> struct warp_state {
  using words = int4_few::tile_words<typename Shape::form>;
  words now;
  cursor at;

  __device__ explicit warp_state(int stages) : at(stages) {}
  __device__ void take(words &out, const places &from, int warp, int lane) const {
    ptx::barrier_wait(from.full(at.stage), at.phase);
    out.load(from.ring + at.stage * Shape::stage_bytes + warp * Shape::half_bytes, lane);
  }
};

// A tile of x as a warp reads it.
struct tile_of_x {
  experts_tile tile = {};
  x_place place;
  int to = 0;      // of lane i: where the tile's row i of y is,
  float by = 1.0f; // and by what its sums are multiplied

  __device__ explicit tile_of_x(const work &w) : place(w, -1, 0) {}
  // The next one, once it has come.
  __device__ void take(const work &w, const places &from, int which, int lane) {
    const grouped_int4_product &p = w.product;
    tile = p.route.tiles[which];
    place = x_place(w, place.number + 1, tile.rows);
    const int row = min(lane, tile.rows - 1), sorted = tile.first + row;
    to = p.y_sorted ? sorted : p.route.pair[sorted];
    ptx::barrier_wait(from.x_full(place.turn()), place.phase());
    by = p.x_type == GEMM_F16 ? 1.0f : __uint_as_float(ptx::load_shared(from.multipliers + 4 * (place.row + row)));
  }
};

// A warp's of a half block of rows, for others to add up; splits: of which each row of x has two columns.
template <int kEights>
__device__ inline void leave_sums(const float (&sum)[int4_few::units][kEights][4], float *to, int rows, bool splits,
                                  int lane) {
#pragma unroll
  for (int e = 0; e < kEights; e++) {
    const int column = 8 * e + lane % 4 * 2, row = splits ? column / 2 : column;
    float *const at = to + row * pitch + lane / 4;
#pragma unroll
    for (int u = 0; u < int4_few::units; u++) {
      const float *const d = sum[u][e];
      if (row < rows) {
        at[16 * u] = splits ? d[0] + d[1] : d[0];
        at[16 * u + 8] = splits ? d[2] + d[3] : d[2];
      }
      if (!splits && row + 1 < rows) {
        at[16 * u + pitch] = d[1];
        at[16 * u + pitch + 8] = d[3];
      }
    }
  }
}

// The half tiles of a piece that are this warp's: of its half block of rows every so many-th, one a stage. x: a lane's
// row of the first eight. Its sums go to `slot`.
template <typename Shape, int kEights>
__device__ inline void multiply_piece(const work &w, warp_state<Shape> &s, const places &from, uint32_t x,
                                      const tile_of_x &t, const piece &p, bool splits, float *slot, int warp,
                                      int lane) {
  const int tiles = w.plan.tiles;
  const bool mine = warp / p.parts < p.blocks;
  float sum[int4_few::units][kEights][4] = {};
#pragma unroll 1
  for (int group = warp % p.parts, first = 0; first < tiles; group += p.parts, first += p.parts) {
    typename warp_state<Shape>::words next;
    __syncwarp();
    if (lane == 0)
      ptx::barrier_arrive(from.empty(s.at.stage));
    s.at.advance();
    if (mine && group < tiles)
      int4_few::multiply_tile<typename Shape::form, x_type, kEights>(sum, s.now, x + group * (GEMM_GROUP * 2),
                                                                     8 * w.plan.x_pitch, w.product.bf16_scales,
                                                                     [&] { s.take(next, from, warp, lane); });
    else
      s.take(next, from, warp, lane);
    s.now = next;
  }
  if (mine)
    leave_sums<kEights>(sum, slot, t.tile.rows, splits, lane);
}

// ---- sums to y

// Row `row` of y of half a block of rows, of which `from` and others behind it, each warp's, have sums.
__device__ inline void write_row(const work &w, const tile_of_x &t, int block, int row, const float *from, int parts,
                                 float unit, int lane) {
  const grouped_int4_product &p = w.product;
  const int64_t n = static_cast<int64_t>(block) * INT4_HALF_ROWS + lane;
  from += row * pitch + lane;
  float sum = *from;
#pragma unroll 1
  for (int part = 1; part < parts; part++)
    sum += *(from += w.plan.rows * pitch);
  const float bias = p.bias ? number_load_as(p.bias, t.tile.expert * p.n + n, p.bias_type) : 0.0f;
  const float factor = p.factors ? p.factors[t.tile.expert * p.n + n] : 1.0f;
  const float by = factor * __shfl_sync(0xffffffffu, t.by, row);
  const int64_t to = __shfl_sync(0xffffffffu, t.to, row);
  number_store_as(static_cast<uint8_t *>(p.y) + to * p.y_stride, n, p.y_type, number_scaled(sum, unit, by, bias));
}

// y of a piece: of a half block of rows that is all this warp's without waiting for others.
template <typename Shape>
__device__ inline void write_piece(const work &w, const tile_of_x &t, const piece &p, const float *sums, int warp,
                                   int lane) {
  constexpr float unit = int4_few::unit_of<typename Shape::form, x_type>;
  const int slot = w.plan.rows * pitch;
  if (p.parts == 1) {
    __syncwarp();
    for (int row = 0; row < t.tile.rows && warp < p.blocks; row++)
      write_row(w, t, p.first + warp, row, sums + warp * slot, 1, unit, lane);
    __syncwarp();
    return;
  }
  ptx::named_barrier_sync(piece_barrier, Shape::consumers);
  for (int i = warp; i < p.blocks * t.tile.rows; i += Shape::warps) {
    const int block = i / t.tile.rows, row = i - block * t.tile.rows;
    write_row(w, t, p.first + block, row, sums + block * p.parts * slot, p.parts, unit, lane);
  }
}

template <typename Shape> __device__ inline void consume(const work &w, const places &from, float *sums) {
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const bool splits = w.product.x_type == GEMM_F32;
  ptx::wait_for_previous_grid();
  warp_state<Shape> s(w.plan.stages);
  tile_of_x t(w);
  bool fresh = true;
  int turn = 0;
  run list(w);
  if (list.left > 0)
    s.take(s.now, from, warp, lane);
#pragma unroll 1
  while (list.left > 0) {
    const piece p = list.now();
    if (fresh)
      t.take(w, from, list.tile, lane);
    // A lane's row of x and place in a pair of steps, as ldmatrix takes them; behind the last row the last once more.
    const int each = splits ? 2 : 1, columns = each * t.tile.rows;
    const uint32_t x = from.x + (each * t.place.row + min(lane % 8, columns - 1)) * w.plan.x_pitch + lane / 8 * 16;
    float *const here = sums + turn * (w.plan.sums_bytes / 8), *const slot = here + warp * w.plan.rows * pitch;
    fresh = list.skip(p.blocks);
    if (Shape::eights == 1 || columns <= 8)
      multiply_piece<Shape, 1>(w, s, from, x, t, p, splits, slot, warp, lane);
    else
      multiply_piece<Shape, Shape::eights>(w, s, from, x, t, p, splits, slot, warp, lane);
    __syncwarp();
    if (fresh && lane == 0)
      ptx::barrier_arrive(from.x_empty(t.place.turn()));
    write_piece<Shape>(w, t, p, here, warp, lane);
    turn ^= p.parts > 1;
  }
}

template <typename Shape>
__global__ void __launch_bounds__(Shape::threads, 1) multiply(const __grid_constant__ work w) {
  extern __shared__ __align__(1024) uint8_t raw[];
  __shared__ largest_of_rows largest;
  const places at(w, ptx::shared_address(raw), Shape::stage_bytes);
  if (threadIdx.x == 0) {
    for (int i = 0; i < w.plan.stages; i++) {
      ptx::barrier_init(at.full(i), copiers);
      ptx::barrier_init(at.empty(i), Shape::warps);
    }
    for (int i = 0; i < 2; i++) {
      ptx::barrier_init(at.x_full(i), 32 * makers);
      ptx::barrier_init(at.x_empty(i), Shape::warps);
    }
    ptx::fence_barrier_init();
  }
  if (threadIdx.x < 3 * GROUPED_INT4_COLUMNS)
    largest[threadIdx.x / GROUPED_INT4_COLUMNS][threadIdx.x % GROUPED_INT4_COLUMNS] = 0;
  __syncthreads();
  constexpr int warps = Shape::warps;
  ptx::let_next_grid_start();
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  if (warp < warps) {
    consume<Shape>(w, at, reinterpret_cast<float *>(raw + (at.sums - at.x)));
  } else if (warp < warps + copiers) {
    if (lane == 0)
      supply_w<Shape>(w, at, warp - warps);
  } else if (w.product.x_type == GEMM_F32) {
    make_tiles<float>(w, at, largest, warp - warps - copiers, lane);
  } else if (w.product.x_type == GEMM_F16) {
    make_tiles<__half>(w, at, largest, warp - warps - copiers, lane);
  } else {
    make_tiles<__nv_bfloat16>(w, at, largest, warp - warps - copiers, lane);
  }
}

} // namespace grouped_int4
