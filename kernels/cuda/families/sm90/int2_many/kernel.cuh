// Kernel of int2_many/config.h.
//
// Two warps have bulk copies run ahead into a ring of units: the tiles of W of each block of rows as they lie, and x in
// swizzled rows of 128 bytes. Warpgroups multiply: narrow tiles by pairs of x (int2_many/pairs.cuh), others, and where
// y is f32, by unpacked numbers (int2_many/dense.cuh).
#pragma once

#include "copies.cuh"
#include "dense.cuh"
#include "int8.cuh"
#include "pairs.cuh"
#include "sums.cuh"

namespace int2_many {

// Those of warpgroups (int2_many/sums.cuh) have the numbers from 1 on.
constexpr int cleared_barrier = 5;

template <typename Shape> __device__ inline void consume(const work &w, shared<Shape> &s) {
  constexpr int eights = Shape::eights;
  struct none {
    __device__ none(const work &, const shared<Shape> &) {}
  };
  using constants = std::conditional_t<Shape::pairs, pair_constants<Shape>,
                                       std::conditional_t<Shape::int8 || (eights > 8), none, dense_constants<Shape>>>;
  [[maybe_unused]] const constants lane(w, s);
  uint32_t done = 0;
#pragma unroll 1
  for (;;) {
    // Block and warpgroup are asked for again each time: products leave no register for what follows from them.
    const int multiplies = __shfl_sync(0xffffffffu, ptx::thread() / 128, 0);
    const run_of_units run(w, ptx::block(), done);
    if (run.unit == run.end)
      break;
    const segment ahead(w, run);
    float sum[4 * eights];
    if constexpr (Shape::int8)
      multiply_int8<Shape>(s, done, done + ahead.last - ahead.first, multiplies, sum);
    else if constexpr (Shape::pairs)
      multiply_pairs<Shape>(s, done, done + ahead.last - ahead.first, lane, sum);
    else if constexpr (INT2_MANY_SCALES_W(Shape::columns, Shape::f16))
      multiply_scaled<Shape>(s, done, done + ahead.last - ahead.first, multiplies, w.product.large_scales, sum);
    else if constexpr (eights > 8)
      multiply_wide<Shape>(s, done, done + ahead.last - ahead.first, multiplies, sum);
    else
      multiply_dense<Shape>(s, done, done + ahead.last - ahead.first, lane, sum);
    finish<Shape>(w, s, done, sum);
  }
}

template <typename Shape> __global__ void __launch_bounds__(Shape::threads, 1) run(const __grid_constant__ work w) {
  extern __shared__ uint8_t raw[];
  const uint32_t begin = ptx::shared_address(raw), skipped = ((begin + 1023) & ~1023u) - begin;
  auto &s = *reinterpret_cast<shared<Shape> *>(raw + skipped);
  ptx::let_next_grid_start();
  if constexpr (Shape::pairs) {
    // A barrier takes who makes it some 30 cycles: so each warp makes a stage's. Others have half as many, and some of
    // them no register for that.
    static_assert(Shape::stages <= Shape::threads / 32);
    if (threadIdx.x % 32 == 0 && threadIdx.x / 32 < Shape::stages) {
      make_stage<Shape>(s, threadIdx.x / 32);
      ptx::fence_barrier_init();
    }
  } else if (threadIdx.x == 0) {
    make_barriers(s);
    ptx::fence_barrier_init();
  }
  __syncthreads();
  const int helper = static_cast<int>(threadIdx.x) - Shape::consumers;
  if (helper >= 0) {
    ptx::registers_decrease<Shape::producer_registers>();
    if (helper == 0)
      produce_w(w, s);
    else if (helper == 32)
      produce_x(w, s);
    if constexpr (Shape::pairs)
      if (helper >= 32 * copying) {
        ptx::named_barrier_sync(cleared_barrier, Shape::threads - 32 * copying);
        produce_pairs(w, s, helper / 32 - copying);
      }
  } else {
    ptx::registers_increase<Shape::consumer_registers>();
    if constexpr (Shape::pairs) {
      clear_pairs(s, Shape::consumers);
      ptx::named_barrier_arrive(cleared_barrier, Shape::threads - 32 * copying);
    }
    consume(w, s);
  }
}

} // namespace int2_many
