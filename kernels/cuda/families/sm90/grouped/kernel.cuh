// The kernel of grouped/config.h.
#pragma once

#include "../../../experts/pieces.cuh"
#include "../hopper/multiply.cuh"
#include "write.cuh"

namespace grouped {

// ---- copies, by one thread

template <int kGroups> struct places {
  uint32_t ring, w_chunk, x_chunk, x_begin, stage;

  __device__ places(uint32_t begin, int columns)
      : ring(begin), w_chunk(kGroups * 64 * hopper::chunk_bytes), x_chunk(columns * hopper::chunk_bytes),
        x_begin(2 * w_chunk), stage(2 * w_chunk + 2 * x_chunk) {}
};

// Steps of the piece. W of a tile that has all of its expert's rows is read once.
template <int kGroups>
__device__ inline void copy_piece(const work &w, shared<kGroups> &s, const places<kGroups> &to, cursor &at,
                                  const piece &p, bool once) {
  const int width = width_of(p.rows), row = static_cast<int>(p.expert * w.product.n) + p.row;
  const CUtensorMap *const x = &w.x[width];
  const uint32_t bytes = 2 * (to.w_chunk + static_cast<uint32_t>(GROUPED_WIDTH(width)) * hopper::chunk_bytes);
  const uint64_t policy = once ? ptx::policy_evict_first() : ptx::policy_evict_normal();
#pragma unroll 1
  for (int step = 0; step < w.steps; step++, at.advance()) {
    const uint32_t full = ptx::shared_address(&s.full[at.stage]), here = to.ring + at.stage * to.stage;
    ptx::barrier_wait(ptx::shared_address(&s.empty[at.stage]), at.phase ^ 1);
    if (step == 0)
      s.pieces[at.stage] = p;
    ptx::barrier_expect(full, bytes);
#pragma unroll
    for (int chunk = 0; chunk < 2; chunk++) {
      const int column = step * GROUPED_STEP + chunk * hopper::chunk_bytes;
      ptx::copy_tensor_once(here + chunk * to.w_chunk, &w.w, column, row, full, policy);
      ptx::copy_tensor(here + to.x_begin + chunk * to.x_chunk, x, column, p.first, full);
    }
  }
}

template <int kGroups> __device__ inline void produce(const work &w, shared<kGroups> &s, const places<kGroups> &to) {
  cursor at(w.stages);
  experts::take_pieces(w.product.route, w.pieces, [&](int number) {
    const int tile = number / w.pieces;
    const experts_tile t = w.product.route.tiles[tile];
    copy_piece(w, s, to, at, {t.expert, t.first, t.rows, (number - tile * w.pieces) * 64 * kGroups}, t.alone != 0);
  });
  ptx::barrier_wait(ptx::shared_address(&s.empty[at.stage]), at.phase ^ 1);
  s.pieces[at.stage] = {-1, 0, 0, 0};
  ptx::barrier_arrive(ptx::shared_address(&s.full[at.stage]));
}

// ---- products

// Scales of W for this thread's two rows in the two blocks of K of a step.
struct block_scales {
  const float *w[2], *x;
  int64_t x_stride;
  int blocks;

  template <int kGroups>
  __device__ block_scales(const hopper_product &p, const piece &of, int warp, int lane, shared<kGroups> &)
      : x(p.x_scale + of.first), x_stride(p.x_scale_stride), blocks(static_cast<int>(p.k / GEMM_GROUP)) {
    const int64_t each = (p.n + GEMM_GROUP - 1) / GEMM_GROUP;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int64_t n = min(static_cast<int64_t>(of.row + warp * 16 + lane / 4 + 8 * i), p.n - 1);
      w[i] = p.w_scale + (of.expert * each + n / GEMM_GROUP) * p.w_scale_stride;
    }
  }
  // By columns of x and rows of W, times each other where they are needed.
  template <int kWidth>
  __device__ void load(int block, int rows, int lane, float (&w_out)[2], float (&x_out)[kWidth / 4]) const {
    const bool there = block < blocks;
#pragma unroll
    for (int i = 0; i < 2; i++)
      w_out[i] = there ? __ldg(w[i] + block) : 0.0f;
#pragma unroll
    for (int i = 0; i < kWidth / 4; i++) {
      const int column = i / 2 * 8 + lane % 4 * 2 + i % 2;
      x_out[i] = there && column < rows ? x[block * x_stride + column] : 0.0f;
    }
  }
};

template <int kRegisters>
__device__ inline void multiply_block(float (&sum)[kRegisters], const hopper::step_operands &at, int chunk,
                                      const float (&w_scale)[2], const float (&x_scale)[kRegisters / 2]) {
  float block[kRegisters] = {};
  hopper::multiply_parts<1, hopper::chunk_instructions>(block, at, chunk * hopper::chunk_instructions, [] {});
#pragma unroll
  for (int r = 0; r < kRegisters; r++)
    sum[r] = fmaf(block[r], w_scale[r % 4 / 2] * x_scale[r / 4 * 2 + r % 2], sum[r]);
}

template <int kRegisters>
__device__ inline void multiply_wide(float (&d)[kRegisters], uint64_t w, uint64_t x, bool add, __half) {
  ptx::wgmma_f16(d, w, x, add);
}

template <int kRegisters>
__device__ inline void multiply_wide(float (&d)[kRegisters], uint64_t w, uint64_t x, bool add, __nv_bfloat16) {
  ptx::wgmma_bf16(d, w, x, add);
}

// A step of 16-bit numbers, whose sums stay with the tensor cores.
template <typename X, int kRegisters>
__device__ inline void multiply_step(float (&sum)[kRegisters], const hopper::step_operands &at, bool first) {
  hopper::keep(sum);
  ptx::wgmma_fence();
#pragma unroll
  for (int i = 0; i < hopper::step_instructions; i++)
    multiply_wide(sum, at.w_of(i), at.x_of(i), !first || i > 0, X());
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  hopper::keep(sum);
}

template <sums kSums, int kWidth, int kGroups>
__device__ inline void compute(const work &w, shared<kGroups> &s, const places<kGroups> &from, cursor &at,
                               const piece &p, int warp, int lane) {
  using T = std::conditional_t<kSums == sums::integers, int, float>;
  const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  const row_factors rows(w.product, p, warp, lane, kSums != sums::block_scaled);
  fetch_columns<kWidth>(w.product, s, p, group, kSums != sums::block_scaled);
  T sum[kWidth / 2] = {};
#pragma unroll 1
  for (int step = 0; step < w.steps; step++) {
    [[maybe_unused]] float w_scale[2][2], x_scale[2][kWidth / 4];
    if constexpr (kSums == sums::block_scaled) {
      const block_scales scales(w.product, p, warp, lane, s);
#pragma unroll
      for (int chunk = 0; chunk < 2; chunk++)
        scales.template load<kWidth>(2 * step + chunk, p.rows, lane, w_scale[chunk], x_scale[chunk]);
    }
    ptx::barrier_wait(ptx::shared_address(&s.full[at.stage]), at.phase);
    const uint32_t here = from.ring + at.stage * from.stage;
    const hopper::step_operands operands = {here + group * 64 * hopper::chunk_bytes, from.w_chunk, here + from.x_begin,
                                            from.x_chunk};
    if constexpr (kSums == sums::integers) {
      hopper::multiply_step(sum, operands, step == 0, [] {});
    } else if constexpr (kSums == sums::every_128) {
      hopper::multiply_parts<hopper::chunk_instructions, hopper::step_instructions>(sum, operands, 0, [] {});
    } else if constexpr (kSums == sums::every_32) {
      hopper::multiply_parts<1, hopper::step_instructions>(sum, operands, 0, [] {});
    } else if constexpr (kSums == sums::f16) {
      multiply_step<__half>(sum, operands, step == 0);
    } else if constexpr (kSums == sums::bf16) {
      multiply_step<__nv_bfloat16>(sum, operands, step == 0);
    } else {
#pragma unroll
      for (int chunk = 0; chunk < 2; chunk++)
        multiply_block(sum, operands, chunk, w_scale[chunk], x_scale[chunk]);
    }
    if (lane == 0)
      ptx::barrier_arrive(ptx::shared_address(&s.empty[at.stage]));
    at.advance();
  }
  write_sums<kSums, kWidth>(w.product, s, p, rows, sum, group, warp, lane);
}

template <sums kSums, int kGroups>
__device__ inline void consume(const work &w, shared<kGroups> &s, const places<kGroups> &from) {
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  cursor at(w.stages);
  ptx::wait_for_previous_grid();
#pragma unroll 1
  for (;;) {
    ptx::barrier_wait(ptx::shared_address(&s.full[at.stage]), at.phase);
    const piece p = s.pieces[at.stage];
    if (p.expert < 0)
      return;
    switch (width_of(p.rows)) {
    case 0:
      compute<kSums, 8>(w, s, from, at, p, warp, lane);
      break;
    case 1:
      compute<kSums, 16>(w, s, from, at, p, warp, lane);
      break;
    case 2:
      compute<kSums, 32>(w, s, from, at, p, warp, lane);
      break;
    case 3:
      compute<kSums, 64>(w, s, from, at, p, warp, lane);
      break;
    case 4: // a third tile where two would be a few rows short
      if constexpr (kGroups == 2 && kSums != sums::block_scaled)
        compute<kSums, 96>(w, s, from, at, p, warp, lane);
      break;
    default: // registers hold no more where blocks have scales of their own
      if constexpr (kGroups == 2 && kSums != sums::block_scaled)
        compute<kSums, 128>(w, s, from, at, p, warp, lane);
    }
  }
}

// With two warpgroups those who copy are one as well, which gives its registers to the others.
constexpr int threads_of(int groups) {
  return groups == 1 ? 160 : 384;
}
constexpr int consumer_registers = 232, producer_registers = 40;

template <sums kSums, int kGroups>
__global__ void __launch_bounds__(threads_of(kGroups), kGroups == 1 && kSums != sums::block_scaled ? 2 : 1)
    run(const __grid_constant__ work w) {
  extern __shared__ uint8_t raw[];
  const uint32_t begin = ptx::shared_address(raw), ring = (begin + 1023) & ~1023u; // the swizzle counts from there
  const places<kGroups> to(ring, w.columns);
  auto &s = *reinterpret_cast<shared<kGroups> *>(raw + (ring - begin) + w.stages * to.stage);
  if (threadIdx.x == 0) {
    for (int i = 0; i < w.stages; i++) {
      ptx::barrier_init(ptx::shared_address(&s.full[i]), 1);
      ptx::barrier_init(ptx::shared_address(&s.empty[i]), kGroups * 4);
    }
    ptx::fence_barrier_init();
  }
  if (threadIdx.x == kGroups * 128) {
    ptx::prefetch_tensor_map(&w.w);
    ptx::prefetch_tensor_map(&w.x[0]);
  }
  __syncthreads();
  ptx::let_next_grid_start();
  if (threadIdx.x >= kGroups * 128) {
    if constexpr (kGroups == 2)
      ptx::registers_decrease<producer_registers>();
    if (threadIdx.x == kGroups * 128)
      produce(w, s, to);
  } else {
    if constexpr (kGroups == 2)
      ptx::registers_increase<consumer_registers>();
    consume<kSums>(w, s, to);
  }
}

} // namespace grouped
