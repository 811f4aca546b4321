// Tiles of x of grouped_int4/kernel.cuh, from sorted rows: as they are, or to f16, f32 in two columns, a number and
// what that leaves of it. Rows that f16 does not hold are scaled by a power of two; sums are multiplied by its inverse.
#pragma once

#include "../int2_few/x.cuh"
#include "share.cuh"

namespace grouped_int4 {

// Eight numbers of a row.
template <typename X> struct eight {
  static constexpr int quads = sizeof(X) / 2;
  uint4 held[quads];

  __device__ void load(const uint8_t *from) {
#pragma unroll
    for (int i = 0; i < quads; i++)
      held[i] = reinterpret_cast<const uint4 *>(from)[i];
  }
  __device__ void numbers(float (&out)[8]) const {
    const uint32_t *words = &held[0].x;
#pragma unroll
    for (int i = 0; i < 8; i++) {
      if constexpr (sizeof(X) == 4)
        out[i] = __uint_as_float(words[i]);
      else
        out[i] = i % 2 ? floats_of<X>(words[i / 2]).y : floats_of<X>(words[i / 2]).x;
    }
  }
  // The bits of the largest magnitude.
  __device__ uint32_t largest() const {
    uint32_t out = 0;
    float number[8];
    numbers(number);
#pragma unroll
    for (int i = 0; i < 8; i++)
      out = max(out, __float_as_uint(number[i]) & 0x7fffffff);
    return out;
  }
};

// Times `scale`; to_rest: where the second column is, of f32.
template <typename X> __device__ inline void store(const eight<X> &from, float scale, uint32_t to, uint32_t to_rest) {
  float number[8];
  uint32_t words[4];
  from.numbers(number);
#pragma unroll
  for (int i = 0; i < 8; i++)
    number[i] *= scale;
#pragma unroll
  for (int i = 0; i < 4; i++)
    words[i] = half2_pack(number[2 * i], number[2 * i + 1]);
  ptx::store_shared_int4(to, words);
  if constexpr (sizeof(X) == 4) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float2 taken = floats_of<__half>(words[i]);
      words[i] = half2_pack(number[2 * i] - taken.x, number[2 * i + 1] - taken.y);
    }
    ptx::store_shared_int4(to_rest, words);
  }
}

// Whether f16 holds numbers well enough of which this is the largest magnitude's bits.
__device__ inline bool is_usual(uint32_t largest) {
  return largest == 0 || (largest >= (127 + half_least_exponent) << 23 && largest < (127 + 16) << 23);
}

// Bits of magnitudes of three tiles' rows, in turn: zeros, before a tile's are looked for.
using largest_of_rows = uint32_t[3][GROUPED_INT4_COLUMNS];

// Eights of a tile's rows, 32 of a row at a time, a warp every so many-th.
template <typename X, typename To> struct maker {
  static constexpr bool copies = std::is_same_v<X, To>;
  static constexpr int batch = sizeof(X) == 2 ? 4 : 2, columns = sizeof(X) / 2;
  const work &w;
  const places &to;
  const experts_tile &tile;
  const x_place &place;
  largest_of_rows &largest;
  int warp, lane, runs, all;

  __device__ maker(const work &w, const places &to, const experts_tile &tile, const x_place &place,
                   largest_of_rows &largest, int warp, int lane)
      : w(w), to(to), tile(tile), place(place), largest(largest), warp(warp), lane(lane), runs((w.plan.tiles + 1) / 2),
        all(tile.rows * runs) {}
  // visit(row, numbers, first of them in the row), of a row's end with fewer lanes.
  template <typename Visit> __device__ void each(const Visit &visit) const {
    const tiles_product &p = w.product;
#pragma unroll 1
    for (int first = warp; first < all; first += makers * batch) {
      eight<X> numbers[batch];
      int row[batch], at[batch];
#pragma unroll
      for (int i = 0; i < batch; i++) {
        const int item = min(first + makers * i, all - 1);
        row[i] = item / runs, at[i] = ((item - row[i] * runs) * 32 + lane) * 8;
        const int here = min(at[i], w.plan.tiles * GEMM_GROUP - 8);
        numbers[i].load(static_cast<const uint8_t *>(p.x) + (tile.first + row[i]) * p.x_stride + here * sizeof(X));
      }
#pragma unroll
      for (int i = 0; i < batch; i++)
        visit(row[i], numbers[i], at[i], at[i] < w.plan.tiles * GEMM_GROUP);
    }
  }
  __device__ void put(int row, const eight<X> &numbers, int at, float scale) const {
    const uint32_t column = to.x + (place.row + row) * columns * w.plan.x_pitch + at * 2;
    if constexpr (copies)
      ptx::store_shared_int4(column, reinterpret_cast<const int4 &>(numbers.held));
    else
      store<X>(numbers, scale, column, column + w.plan.x_pitch);
  }
  __device__ void make(int number) const {
    uint32_t *const most_of = largest[number % 3];
    each([&](int row, const eight<X> &numbers, int at, bool there) {
      if constexpr (sizeof(X) == 2)
        if (there)
          put(row, numbers, at, 1.0f);
      if constexpr (!copies) {
        const uint32_t most = __reduce_max_sync(0xffffffff, numbers.largest());
        if (lane == 0)
          atomicMax(most_of + row, most);
      }
    });
    if constexpr (copies)
      return;
    ptx::named_barrier_sync(makers_barrier, 32 * makers);
    const int mine = min(lane, tile.rows - 1);
    const uint32_t found = most_of[mine];
    const bool usual = sizeof(X) == 2 && is_usual(found);
    if (warp == 0 && lane < GROUPED_INT4_COLUMNS)
      largest[(number + 2) % 3][lane] = 0;
    if (warp == 1 && lane < tile.rows)
      ptx::store_shared(to.multipliers + 4 * (place.row + lane),
                        __float_as_uint(usual ? 1.0f : int2_few::x_scale(found).inverse));
    if (__all_sync(0xffffffff, usual))
      return;
    const float scale = usual ? 1.0f : int2_few::x_scale(found).scale;
    each([&](int row, const eight<X> &numbers, int at, bool there) {
      const float by = __shfl_sync(0xffffffff, scale, row);
      if (there)
        put(row, numbers, at, by);
    });
  }
};

template <typename X, typename To>
__device__ inline void make_tiles(const work &w, const places &to, largest_of_rows &largest, int warp, int lane) {
  ptx::wait_for_previous_grid();
  const uint4 early = early_tile(w, lane);
  run list(w);
  experts_tile tile = list.first(w, early);
  bool large = false; // the tile before
#pragma unroll 1
  for (int number = 0; list.left > 0; list.next_tile(), number++, tile = w.product.route.tiles[list.tile]) {
    const x_place place(w.plan.rows, number, tile.rows);
    ptx::barrier_wait(to.x_empty(place.turn()), place.phase() ^ 1);
    if (number > 0 && (large || place.large))
      ptx::barrier_wait(to.x_empty((number - 1) % 2), (number - 1) / 2 % 2);
    large = place.large;
    maker<X, To>(w, to, tile, place, largest, warp, lane).make(number);
    ptx::barrier_arrive(to.x_full(place.turn()));
  }
}

} // namespace grouped_int4
