// The tensor cores' part of a step: a warpgroup's 64 rows of W by all columns, from shared memory into registers.
#pragma once

#include "../../../device/wgmma.cuh"
#include "copy.cuh"

namespace hopper {

// How FP8 sums leave the tensor cores; see hopper/config.h.
enum class sums { integers, every_128, every_32, block_scaled };

// With so few columns taking sums out after every instruction costs nothing (H200, 4096x4096, M = 16: 6.16 us
// for 6.19), so that bf16 results have that, too; with 32 columns it takes 7.22 us for 6.35.
constexpr int fine_columns = 16;

template <sums kSums> struct sum_of { using type = float; };
template <> struct sum_of<sums::integers> { using type = int; };

constexpr int instruction_bytes = 32;
constexpr int chunk_instructions = chunk_bytes / instruction_bytes;
constexpr int step_instructions = 2 * chunk_instructions;

template <int kRegisters> __device__ inline void multiply(float (&d)[kRegisters], uint64_t w, uint64_t x, bool add) {
  ptx::wgmma_e4m3(d, w, x, add);
}

template <int kRegisters> __device__ inline void multiply(int (&d)[kRegisters], uint64_t w, uint64_t x, bool add) {
  ptx::wgmma_s8(d, w, x, add);
}

template <typename T, int kRegisters> __device__ inline void keep(T (&d)[kRegisters]) {
#pragma unroll
  for (int i = 0; i < kRegisters; i++)
    ptx::keep(d[i]);
}

// Where the operands of a step lie: two chunks each.
struct step_operands {
  uint32_t w, w_chunk, x, x_chunk;

  __device__ uint64_t w_of(int instruction) const {
    return ptx::swizzled_descriptor(w + instruction / chunk_instructions * w_chunk) +
           2 * (instruction % chunk_instructions);
  }
  __device__ uint64_t x_of(int instruction) const {
    return ptx::swizzled_descriptor(x + instruction / chunk_instructions * x_chunk) +
           2 * (instruction % chunk_instructions);
  }
};

// `meanwhile`: what is done while the first products are under way.
template <int kRegisters, typename Operands, typename Meanwhile>
__device__ inline void multiply_step(int (&sum)[kRegisters], const Operands &at, bool first,
                                     const Meanwhile &meanwhile) {
  keep(sum);
  ptx::wgmma_fence();
#pragma unroll
  for (int i = 0; i < step_instructions; i++)
    multiply(sum, at.w_of(i), at.x_of(i), !first || i > 0);
  ptx::wgmma_commit();
  meanwhile();
  ptx::wgmma_wait<0>();
  keep(sum);
}

// Registers for partial sums: a thread has 168 in all where three warpgroups share a multiprocessor's.
template <int kSums> constexpr int part_registers = kSums == 16 || kSums == 32 ? 64 : 128;

// Adds partial sums from number `kPart` on, each as soon as the tensor cores are done with it.
template <int kPart, int kParts, int kRegisters>
__device__ inline void add_parts(float (&sum)[kRegisters], float (&part)[kParts][kRegisters]) {
  if constexpr (kPart < kParts) {
    ptx::wgmma_wait<kParts - 1 - kPart>();
    keep(part[kPart]);
#pragma unroll
    for (int r = 0; r < kRegisters; r++)
      sum[r] += part[kPart][r];
    add_parts<kPart + 1>(sum, part);
  }
}

// Instructions [first, first + kCount), of which `kRun` of every partial sum stay in the tensor cores. As many partial
// sums are under way as registers allow, so that their latencies overlap.
template <int kRun, int kCount, int kRegisters, typename Operands, typename Meanwhile>
__device__ inline void multiply_parts(float (&sum)[kRegisters], const Operands &at, int first,
                                      const Meanwhile &meanwhile) {
  constexpr int fit = part_registers<kRegisters> / kRegisters, all = kCount / kRun, parts = fit < all ? fit : all;
#pragma unroll
  for (int i = first; i < first + kCount; i += parts * kRun) {
    float part[parts][kRegisters];
#pragma unroll
    for (int p = 0; p < parts; p++)
      keep(part[p]);
    ptx::wgmma_fence();
#pragma unroll
    for (int p = 0; p < parts; p++) {
#pragma unroll
      for (int j = 0; j < kRun; j++)
        multiply(part[p], at.w_of(i + p * kRun + j), at.x_of(i + p * kRun + j), j > 0);
      ptx::wgmma_commit();
    }
    if (i == first)
      meanwhile();
    add_parts<0>(sum, part);
  }
}

// One chunk, which is one block of K, times its scales. `w_scale`: of this thread's two rows; `x_scale`: in shared
// memory, one a column.
template <int kRegisters>
__device__ inline void multiply_block(float (&sum)[kRegisters], const step_operands &at, int chunk,
                                      const float (&w_scale)[2], const float *x_scale) {
  float block[kRegisters] = {};
  multiply_parts<1, chunk_instructions>(block, at, chunk * chunk_instructions, [] {});
#pragma unroll
  for (int r = 0; r < kRegisters; r++) {
    const int column = r / 4 * 8 + threadIdx.x % 4 * 2 + r % 2;
    sum[r] = fmaf(block[r], w_scale[r % 4 / 2] * x_scale[column], sum[r]);
  }
}

} // namespace hopper
