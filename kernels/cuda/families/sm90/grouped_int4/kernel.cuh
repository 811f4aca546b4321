// The kernel of grouped_int4/config.h.
#pragma once

#include "../int4_few/kernel.cuh"
#include "make.cuh"

namespace grouped_int4 {

// ---- copies of W, a stage of tiles that follow each other in one piece, or of twice as many halves of tiles

template <typename Shape> __device__ inline void supply_w(const work &w, const places &to, int lane) {
  using form = typename Shape::form;
  cursor at(w.plan.stages);
  ptx::wait_for_previous_grid();
  const uint4 early = early_tile(w, lane);
  run list(w);
  experts_tile tile = list.first(w, early);
  if (lane > 0)
    return;
#pragma unroll 1
  while (list.left > 0) {
    const int here = list.here(), each = here == 1 ? Shape::warps : Shape::together;
    const uint64_t policy = tile.alone ? ptx::policy_evict_first() : ptx::policy_evict_normal();
    const int64_t half = static_cast<int64_t>(tile.expert) * w.halves + list.half;
    const uint8_t *from = static_cast<const uint8_t *>(w.product.tiles) + half / 2 * w.plan.tiles * form::tile_bytes +
                          half % 2 * form::half_bytes;
#pragma unroll 1
    for (int left = max(here / 2, 1) * w.plan.tiles; left > 0; left -= each, at.advance()) {
      const int count = min(left, each);
      const uint32_t full = to.full(at.stage), stage = to.ring + at.stage * Shape::stage_bytes;
      ptx::barrier_wait(to.empty(at.stage), at.phase ^ 1);
      ptx::barrier_expect(full, count * (here == 1 ? form::half_bytes : form::tile_bytes));
      if (here > 1)
        ptx::copy_bulk(stage, from, count * form::tile_bytes, full, policy);
      else
        for (int i = 0; i < count; i++)
          ptx::copy_bulk(stage + i * form::half_bytes, from + i * form::tile_bytes, form::half_bytes, full, policy);
      from += count * form::tile_bytes;
    }
    if (list.next())
      tile = w.product.route.tiles[list.tile];
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
    out.load(from.ring + at.stage * Shape::stage_bytes + warp * Shape::form::half_bytes, lane);
  }
};

// A tile of x as a warp reads it.
struct tile_of_x {
  experts_tile tile = {};
  x_place place;
  int to = 0;      // of lane i: where the tile's row i of y is,
  float by = 1.0f; // and by what its sums are multiplied

  __device__ explicit tile_of_x(const work &w) : place(w.plan.rows, -1, 0) {}
  // The next one, once it has come.
  template <typename X> __device__ void take(const work &w, const places &from, int which, int lane) {
    const tiles_product &p = w.product;
    tile = p.route.tiles[which];
    place = x_place(w.plan.rows, place.number + 1, tile.rows);
    const int row = min(lane, tile.rows - 1), sorted = tile.first + row;
    to = p.y_sorted ? sorted : p.route.pair[sorted];
    ptx::barrier_wait(from.x_full(place.turn()), place.phase());
    by = p.x_type == type_of<X> ? 1.0f : __uint_as_float(ptx::load_shared(from.multipliers + 4 * (place.row + row)));
  }
};

static_assert(pitch == int4_few::pitch, "sums lie as int4_few stores them");

// A warp's share of a tile of x by a piece of so many halves of blocks of rows: of the tiles of W, which follow each
// other, half of every so many-th, one a stage. What is of a block of rows is left for adders behind the last of them.
// x: a lane's row of the first eight; number: of blocks of rows so far.
template <typename Shape, int kEights>
__device__ inline void multiply_piece(const work &w, warp_state<Shape> &s, const places &at, uint32_t x,
                                      const tile_of_x &t, int halves, bool splits, float *sums, int &number, int warp,
                                      int lane) {
  const int tiles = w.plan.tiles, slot = w.plan.rows * pitch;
  float *const mine = sums + warp / 2 * slot + warp % 2 * INT4_HALF_ROWS;
  float sum[int4_few::units][kEights][4] = {};
  const int each = halves == 1 ? Shape::warps : Shape::together;
  int blocks = max(halves / 2, 1), left = (blocks * tiles + each - 1) / each; // stages
  int k = halves == 1 ? warp : warp / 2;                                      // tile of K
#pragma unroll 1
  while (true) {
    while (k >= tiles && blocks > 0) {
      const int turn = number % 2;
      if (number >= 2)
        ptx::barrier_wait(at.added(turn), (number / 2 - 1) % 2);
      int4_few::store_sums<kEights>(sum, mine + turn * (Shape::together * slot), t.tile.rows, splits, lane);
      __syncwarp();
      if (lane == 0)
        ptx::barrier_arrive(at.summed(turn));
      k -= tiles, blocks--, number++;
    }
    if (left-- == 0)
      return;
    typename warp_state<Shape>::words next;
    __syncwarp();
    if (lane == 0)
      ptx::barrier_arrive(at.empty(s.at.stage));
    s.at.advance();
    if (blocks > 0)
      int4_few::multiply_tile<typename Shape::form, typename Shape::x_type, kEights>(
          sum, s.now, x + k * (GEMM_GROUP * 2), 8 * w.plan.x_pitch, w.product.bf16_scales,
          [&] { s.take(next, at, warp, lane); });
    else
      s.take(next, at, warp, lane);
    s.now = next;
    k += each;
  }
}

template <typename Shape>
__device__ inline void consume(const work &w, const places &at, float *sums, int warp, int lane) {
  const bool splits = w.product.x_type == GEMM_F32;
  ptx::wait_for_previous_grid();
  warp_state<Shape> s(w.plan.stages);
  tile_of_x t(w);
  bool fresh = true;
  int number = 0;
  uint32_t x = 0;
  run list(w);
  if (list.left > 0)
    s.take(s.now, at, warp, lane);
#pragma unroll 1
  while (list.left > 0) {
    const int each = splits ? 2 : 1;
    if (fresh) {
      t.take<typename Shape::x_type>(w, at, list.tile, lane);
      // A lane's row of x and place in a pair of steps, as ldmatrix takes them; behind the last row the last once more.
      x = at.x + (each * t.place.row + min(lane % 8, each * t.tile.rows - 1)) * w.plan.x_pitch + lane / 8 * 16;
    }
    const int here = list.here();
    fresh = list.next();
    if (Shape::eights == 1 || each * t.tile.rows <= 8)
      multiply_piece<Shape, 1>(w, s, at, x, t, here, splits, sums, number, warp, lane);
    else
      multiply_piece<Shape, Shape::eights>(w, s, at, x, t, here, splits, sums, number, warp, lane);
    __syncwarp();
    if (fresh && lane == 0)
      ptx::barrier_arrive(at.x_empty(t.place.turn()));
  }
}

// ---- sums to y

// Rows n .. n + 3 of an expert's W, of row `to` of y.
__device__ inline void write_y(const tiles_product &p, int expert, int64_t n, int64_t to, float by, float unit,
                               const float (&sum)[4]) {
  float out[4];
#pragma unroll
  for (int j = 0; j < 4; j++) {
    const int64_t at = expert * p.n + n + j;
    const float factor = p.factors ? p.factors[at] : 1.0f;
    out[j] = number_scaled(sum[j], unit * factor, by, p.bias ? number_load_as(p.bias, at, p.bias_type) : 0.0f);
  }
  uint8_t *const row = static_cast<uint8_t *>(p.y) + to * p.y_stride;
  number_store4_as(row, n, p.n, p.y_type, out);
}

// What warps have of a block of rows, or of half a one that all of them share, added up in one order, to y.
template <typename Shape>
__device__ inline void add_block(const work &w, const tile_of_x &t, int half, bool alone, uint32_t sums, int lane) {
  constexpr float unit = int4_few::unit_of<typename Shape::form, typename Shape::x_type>;
  const uint32_t slot = w.plan.rows * pitch * 4;
  const int lanes = alone ? 8 : 16, rows = 32 / lanes, four = lane % lanes * 4; // lanes: that a row takes
#pragma unroll 1
  for (int first = 0; first < t.tile.rows; first += rows) {
    const int row = first + lane / lanes, safe = min(row, t.tile.rows - 1);
    const float by = __shfl_sync(0xffffffffu, t.by, safe);
    const int to = __shfl_sync(0xffffffffu, t.to, safe);
    const uint32_t from = sums + (safe * pitch + four) * 4;
    float sum[4] = {};
#pragma unroll
    for (int part = 0; part < Shape::together; part++) {
      int4_few::add(sum, ptx::load_shared_int4(from + part * slot));
      if (alone)
        int4_few::add(sum, ptx::load_shared_int4(from + part * slot + INT4_HALF_ROWS * 4));
    }
    if (row < t.tile.rows)
      write_y(w.product, t.tile.expert, static_cast<int64_t>(half) * INT4_HALF_ROWS + four, to, by, unit, sum);
  }
}

template <typename Shape> __device__ inline void add_up(const work &w, const places &at, int lane) {
  ptx::wait_for_previous_grid();
  tile_of_x t(w);
  bool fresh = true;
  int number = 0;
  run list(w);
#pragma unroll 1
  while (list.left > 0) {
    if (fresh) {
      t.take<typename Shape::x_type>(w, at, list.tile, lane);
      __syncwarp();
      if (lane == 0)
        ptx::barrier_arrive(at.x_empty(t.place.turn())); // all that is needed of it is in registers
    }
    const int first = list.half, here = list.here();
    fresh = list.next();
#pragma unroll 1
    for (int half = 0; half < here; half += 2, number++) {
      const int turn = number % 2;
      ptx::barrier_wait(at.summed(turn), number / 2 % 2);
      add_block<Shape>(w, t, first + half, here == 1, at.sums + turn * (w.plan.sums_bytes / 2), lane);
      __syncwarp();
      if (lane == 0)
        ptx::barrier_arrive(at.added(turn));
    }
  }
}

template <typename Shape>
__global__ void __launch_bounds__(Shape::threads, 1) multiply(const __grid_constant__ work w) {
  extern __shared__ __align__(1024) uint8_t raw[];
  __shared__ largest_of_rows largest;
  const places at(w, ptx::shared_address(raw), Shape::stage_bytes);
  if (threadIdx.x == 0) {
    for (int i = 0; i < w.plan.stages; i++) {
      ptx::barrier_init(at.full(i), 1);
      ptx::barrier_init(at.empty(i), Shape::warps);
    }
    for (int i = 0; i < 2; i++) {
      ptx::barrier_init(at.x_full(i), 32 * makers);
      ptx::barrier_init(at.x_empty(i), Shape::warps + 1);
      ptx::barrier_init(at.summed(i), Shape::warps);
      ptx::barrier_init(at.added(i), 1);
    }
    ptx::fence_barrier_init();
  }
  if (threadIdx.x < 3 * GROUPED_INT4_COLUMNS)
    largest[threadIdx.x / GROUPED_INT4_COLUMNS][threadIdx.x % GROUPED_INT4_COLUMNS] = 0;
  __syncthreads();
  constexpr int warps = Shape::warps;
  ptx::let_next_grid_start();
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  if (warp < warps)
    return consume<Shape>(w, at, reinterpret_cast<float *>(raw + (at.sums - at.x)), warp, lane);
  if (warp == warps)
    return add_up<Shape>(w, at, lane);
  const int maker = warp - warps - 1;
  if (maker == makers) {
    supply_w<Shape>(w, at, lane);
  } else if constexpr (std::is_same_v<typename Shape::x_type, __nv_bfloat16>) {
    make_tiles<__nv_bfloat16, __nv_bfloat16>(w, at, largest, maker, lane);
  } else if (w.product.x_type == GEMM_F32) {
    make_tiles<float, __half>(w, at, largest, maker, lane);
  } else if (w.product.x_type == GEMM_F16) {
    make_tiles<__half, __half>(w, at, largest, maker, lane);
  } else {
    make_tiles<__nv_bfloat16, __half>(w, at, largest, maker, lane);
  }
}

} // namespace grouped_int4
