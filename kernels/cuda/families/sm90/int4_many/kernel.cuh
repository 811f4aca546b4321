#pragma once

#include "../int2_many/copies.cuh"
#include "../int2_many/sums.cuh"
#include "multiply.cuh"

namespace int4_many {

template <typename Shape> __device__ inline void consume(const work &w, shared<Shape> &s) {
  uint32_t done = 0;
#pragma unroll 1
  for (;;) {
    const int multiplies = __shfl_sync(0xffffffffu, ptx::thread() / 128, 0);
    const int2_many::run_of_units run(w, ptx::block(), done);
    if (run.unit == run.end)
      break;
    const int2_many::segment ahead(w, run);
    float sum[4 * Shape::eights];
    if constexpr (Shape::int8)
      multiply_int8<Shape>(w, s, done, done + ahead.last - ahead.first, multiplies, sum);
    else if constexpr (Shape::rescales)
      multiply_rescaled<Shape>(w, s, done, done + ahead.last - ahead.first, multiplies, sum);
    else if constexpr (Shape::scales_w)
      multiply_scaled<Shape>(w, s, done, done + ahead.last - ahead.first, multiplies, sum);
    else
      multiply_exact<Shape>(w, s, done, done + ahead.last - ahead.first, multiplies, sum);
    int2_many::finish<Shape>(w, s, done, sum);
  }
}

template <typename Shape> __global__ void __launch_bounds__(Shape::threads, 1) run(const __grid_constant__ work w) {
  extern __shared__ uint8_t raw[];
  const uint32_t begin = ptx::shared_address(raw), skipped = ((begin + 1023) & ~1023u) - begin;
  auto &s = *reinterpret_cast<shared<Shape> *>(raw + skipped);
  ptx::let_next_grid_start();
  if (threadIdx.x == 0) {
    for (int i = 0; i < s.stages; i++) {
      ptx::barrier_init(ptx::shared_address(&s.full[i]), int2_many::copying);
      ptx::barrier_init(ptx::shared_address(&s.empty[i]), s.arrivals);
    }
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
  } else {
    ptx::registers_increase<Shape::consumer_registers>();
    consume(w, s);
  }
}

} // namespace int4_many
