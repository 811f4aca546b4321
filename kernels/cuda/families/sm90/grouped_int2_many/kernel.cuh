// The kernel of grouped_int2_many/config.h.
#pragma once

#include "narrow.cuh"

#include "../int2_many/dense.cuh"
#include "../int2_many/int8.cuh"
#include "copies.cuh"
#include "pairs.cuh"
#include "write.cuh"

#include <type_traits>

namespace grouped_int2_many {

// By a warpgroup, for itself; what it waits for before it writes y is enough for others to read it.
template <typename Shape> __device__ inline void find_rows(const work &w, shared<Shape> &s, const piece &p, int group) {
  const int i = static_cast<int>(ptx::thread()) % 128;
  if (i < p.rows)
    s.row_of_y[group][i] = w.like.product.y_sorted ? p.first + i : w.like.product.route.pair[p.first + i];
}

// A piece is looked at once more where its products are done, for which they leave no registers.
template <typename Shape, int kEights, typename Constants>
__device__ inline void compute(const work &w, shared<Shape> &s, uint32_t &done, const turn &at, const Constants &lane) {
  using namespace int2_many;
  const tiles_product &of = w.like.product;
  const int group = __shfl_sync(0xffffffffu, ptx::thread() / 128, 0);
  float sum[4 * kEights];
  group_sync(group); // the piece before has left shared memory
  find_rows(w, s, s.pieces[at.place()], group);
  const uint32_t end = done + w.tiles_k;
  using narrow_shape = narrow<Shape, kEights>;
  auto &few = reinterpret_cast<int2_many::shared<narrow_shape> &>(s);
  if constexpr (Shape::int8)
    multiply_int8<narrow_shape>(few, done, end, group, sum);
  else if constexpr (Shape::pairs)
    multiply_pairs<narrow_shape>(few, done, end, reinterpret_cast<const pair_constants<narrow_shape> &>(lane), sum);
  else if constexpr (INT2_MANY_SCALES_W(Shape::columns, Shape::f16))
    multiply_scaled<Shape>(s, done, end, group, of.large_scales, sum);
  else if constexpr (kEights > 8)
    multiply_wide<Shape>(s, done, end, group, sum);
  else
    multiply_dense<Shape>(s, done, end, lane, sum);
  const int writes = static_cast<int>(ptx::thread()) / 128;
  const piece p = s.pieces[at.place()];
  const rows_of_y to = {of, s.row_of_y[writes], p.rows};
  const int64_t n = static_cast<int64_t>(p.block + writes) * INT2_BLOCK_ROWS, bias = p.expert * of.n;
  if constexpr (Shape::int8)
    scale_by_x<kEights>(of, p.first, sum);
  if (Shape::int8 && of.y_type == GEMM_F32)
    write_f32<Shape, kEights>(of, s, n, bias, to, writes, sum);
  else
    write_16<Shape, kEights>(of, s, n, bias, to, writes, sum);
}

// What is multiplied where a tile has so many eights of columns at most: all that there are, but of narrow tiles whose
// W is not unpacked to 16 bits.
template <typename Shape> __host__ __device__ constexpr int width(int eights) {
  constexpr int all = Shape::eights;
  return Shape::pairs || (Shape::int8 && all <= 4) ? (eights < all ? eights : all) : all;
}

template <typename Shape> __device__ inline void consume(const work &w, shared<Shape> &s) {
  using namespace int2_many;
  struct none {
    __device__ none(const int2_many::work &, const int2_many::shared<Shape> &) {}
  };
  using constants =
      std::conditional_t<Shape::pairs, pair_constants<Shape>,
                         std::conditional_t<Shape::int8 || (Shape::eights > 8), none, dense_constants<Shape>>>;
  [[maybe_unused]] const constants lane(w.like, s);
  uint32_t done = 0;
#pragma unroll 1
  for (turn name;; name.number++) {
    const piece p = next_piece(s, name);
    if (p.expert < 0)
      return;
    const int eights = __shfl_sync(0xffffffffu, p.eights(), 0);
    if (eights <= width<Shape>(1))
      compute<Shape, width<Shape>(1)>(w, s, done, name, lane);
    else if (eights <= width<Shape>(2))
      compute<Shape, width<Shape>(2)>(w, s, done, name, lane);
    else if (Shape::pairs && eights <= width<Shape>(3))
      compute<Shape, width<Shape>(Shape::pairs ? 3 : 4)>(w, s, done, name, lane);
    else
      compute<Shape, Shape::eights>(w, s, done, name, lane);
    __syncwarp();
    if (ptx::thread() % 32 == 0)
      give_back(s, name);
  }
}

template <typename Shape> __global__ void __launch_bounds__(Shape::threads, 1) run(const __grid_constant__ work w) {
  extern __shared__ uint8_t raw[];
  const uint32_t begin = ptx::shared_address(raw), skipped = ((begin + 1023) & ~1023u) - begin;
  auto &s = *reinterpret_cast<shared<Shape> *>(raw + skipped);
  ptx::let_next_grid_start();
  if (threadIdx.x == 0) {
    int2_many::make_barriers<Shape>(s);
    for (int i = 0; i < 2; i++) {
      ptx::barrier_init(ptx::shared_address(&s.named[i]), 1);
      ptx::barrier_init(ptx::shared_address(&s.taken[i]), s.readers);
    }
    ptx::fence_barrier_init();
  }
  if constexpr (Shape::pairs)
    int2_many::clear_pairs<Shape>(s);
  __syncthreads();
  const int helper = static_cast<int>(threadIdx.x) - Shape::consumers;
  if (helper >= 0) {
    ptx::registers_decrease<Shape::producer_registers>();
    if (helper == 0)
      produce_w(w, s);
    else if (helper == 32)
      produce_x(w, s);
    if constexpr (Shape::pairs)
      if (helper >= 32 * int2_many::copying)
        produce_pairs(w, s, helper / 32 - int2_many::copying);
  } else {
    ptx::registers_increase<Shape::consumer_registers>();
    consume(w, s);
  }
}

} // namespace grouped_int2_many
