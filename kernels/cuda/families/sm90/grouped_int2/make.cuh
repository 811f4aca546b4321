// Tiles of x of grouped_int2/kernel.cuh, from sorted rows to what the sparse matrix instruction takes: int2_few/x.cuh.
#pragma once

#include "../int2_few/x.cuh"
#include "share.cuh"

namespace grouped_int2 {

// Parts of a row's four groups that a warp asks for at a time.
template <typename X> constexpr int parts_at_once = sizeof(X) == 2 ? 4 : 2;

// A warp's part of a tile's rows: every so many-th four groups.
template <typename X, bool kSplits>
__device__ inline void make_tile(const work &w, const places &to, const experts_tile &tile, const x_place &place,
                                 int warp, int lane) {
  using part = int2_few::x_part<X, kSplits>;
  constexpr int batch = parts_at_once<X>, columns = kSplits ? 2 : 1;
  const tiles_product &p = w.product;
  const int groups = w.plan.groups, fours = (groups + 3) / 4, all = tile.rows * fours;
  const uint32_t column_bytes = groups * GROUPED_INT2_X_BYTES;
#pragma unroll 1
  for (int first = warp; first < all; first += makers * batch) {
    part numbers[batch];
    const auto row_of = [&](int i) { return min(first + makers * i, all - 1) / fours; };
    const auto group_of = [&](int i) {
      return min((min(first + makers * i, all - 1) - row_of(i) * fours) * 4 + lane / 8, groups - 1);
    };
#pragma unroll
    for (int i = 0; i < batch; i++)
      numbers[i].load(static_cast<const uint8_t *>(p.x) + (tile.first + row_of(i)) * p.x_stride +
                      (group_of(i) * GEMM_GROUP + lane % 8 * 16) * sizeof(X));
#pragma unroll
    for (int i = 0; i < batch; i++) {
      const int row = row_of(i), group = group_of(i);
      // Columns of the instruction lie apart by whose number is odd: of rows that are not split the sorted row's.
      const int odd = kSplits ? 0 : (tile.first + row) % 2;
      const uint32_t x = to.x + (place.row + row) * columns * column_bytes + group * GROUPED_INT2_X_BYTES;
      const float by =
          numbers[i].store_scaled(x + part::place(lane, odd), x + (columns - 1) * column_bytes + part::place(lane, 1));
      if (lane % 8 == 0)
        ptx::store_shared(to.multipliers + ((place.row + row) * w.plan.multipliers + group) * 4, __float_as_uint(by));
    }
  }
}

template <typename X, bool kSplits>
__device__ inline void make_tiles(const work &w, const places &to, int warp, int lane) {
  ptx::wait_for_previous_grid();
  bool large = false; // the tile before
  int number = 0;
#pragma unroll 1
  for (run list(w); list.left > 0; list.advance(min(list.left, list.row_blocks - list.block)), number++) {
    const experts_tile tile = list.tile_of_x(w);
    const x_place place(w.plan.rows, number, tile.rows);
    ptx::barrier_wait(to.x_empty(place.turn()), place.phase() ^ 1);
    if (number > 0 && (large || place.large))
      ptx::barrier_wait(to.x_empty((number - 1) % 2), (number - 1) / 2 % 2);
    large = place.large;
    make_tile<X, kSplits>(w, to, tile, place, warp, lane);
    ptx::barrier_arrive(to.x_full(place.turn()));
  }
}

} // namespace grouped_int2
