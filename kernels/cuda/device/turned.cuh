// Hopper's wrappers for operands of 16-bit numbers that lie by columns, and for copies that several blocks of a cluster
// get.
#pragma once

#include "ptx.cuh"
#include "wgmma.cuh"

namespace ptx {

// At the barrier of another block of the cluster, by its address from map_to_rank.
__device__ inline void barrier_arrive_at(uint32_t barrier) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// A box of a matrix into all blocks of the cluster that `blocks` has bits for, at the same place, each with its own
// barrier.
__device__ inline void copy_tensor_to(uint32_t to, const void *map, int column, int row, uint32_t barrier,
                                      uint16_t blocks) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
               "[%1, {%2, %3}], [%4], %5;" ::"r"(to),
               "l"(map), "r"(column), "r"(row), "r"(barrier), "h"(blocks)
               : "memory");
}

// Of an operand of 16-bit numbers by columns: of each element of K 64 numbers of neighbouring rows, 128 bytes whose
// 16-byte units are swizzled by K % 8; the next 64 rows lie `across` bytes further on. Adding 128 moves on by 16 of K.
__device__ inline uint64_t turned_descriptor(uint32_t address, uint32_t across) {
  constexpr uint64_t swizzle_128 = uint64_t(1) << 62, eight_of_k = uint64_t(1024 >> 4) << 32;
  return swizzle_128 | eight_of_k | uint64_t(across >> 4) << 16 | ((address & 0x3ffff) >> 4);
}

// NAME(d, a, b, add) as in wgmma.cuh; A_TURNED, B_TURNED: 1 where the operand lies by columns.
#define WGMMA_TURNED(NAME, TYPE, N, COUNT, A_TURNED, B_TURNED, A, B, ADD)                                              \
  __device__ inline void NAME(float(&d)[COUNT], uint64_t a, uint64_t b, bool add) {                                    \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #ADD ", 0;\n"                                                    \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #TYPE "." #TYPE " {" WGMMA_NAMES_##COUNT            \
                 "}, %" #A ", %" #B ", p, 1, 1, " #A_TURNED ", " #B_TURNED ";\n}"                                      \
                 : WGMMA_SUMS_##COUNT("+f", 0)                                                                         \
                 : "l"(a), "l"(b), "r"(static_cast<int>(add)));                                                        \
  }

WGMMA_TURNED(wgmma_f16_rows_rows, f16, 64, 32, 0, 0, 32, 33, 34)
WGMMA_TURNED(wgmma_f16_rows_rows, f16, 128, 64, 0, 0, 64, 65, 66)
WGMMA_TURNED(wgmma_f16_rows_rows, f16, 256, 128, 0, 0, 128, 129, 130)
WGMMA_TURNED(wgmma_f16_rows_turned, f16, 64, 32, 0, 1, 32, 33, 34)
WGMMA_TURNED(wgmma_f16_rows_turned, f16, 128, 64, 0, 1, 64, 65, 66)
WGMMA_TURNED(wgmma_f16_rows_turned, f16, 256, 128, 0, 1, 128, 129, 130)
WGMMA_TURNED(wgmma_f16_turned_rows, f16, 64, 32, 1, 0, 32, 33, 34)
WGMMA_TURNED(wgmma_f16_turned_rows, f16, 128, 64, 1, 0, 64, 65, 66)
WGMMA_TURNED(wgmma_f16_turned_rows, f16, 256, 128, 1, 0, 128, 129, 130)
WGMMA_TURNED(wgmma_f16_turned_turned, f16, 64, 32, 1, 1, 32, 33, 34)
WGMMA_TURNED(wgmma_f16_turned_turned, f16, 128, 64, 1, 1, 64, 65, 66)
WGMMA_TURNED(wgmma_f16_turned_turned, f16, 256, 128, 1, 1, 128, 129, 130)
WGMMA_TURNED(wgmma_bf16_rows_rows, bf16, 64, 32, 0, 0, 32, 33, 34)
WGMMA_TURNED(wgmma_bf16_rows_rows, bf16, 128, 64, 0, 0, 64, 65, 66)
WGMMA_TURNED(wgmma_bf16_rows_rows, bf16, 256, 128, 0, 0, 128, 129, 130)
WGMMA_TURNED(wgmma_bf16_rows_turned, bf16, 64, 32, 0, 1, 32, 33, 34)
WGMMA_TURNED(wgmma_bf16_rows_turned, bf16, 128, 64, 0, 1, 64, 65, 66)
WGMMA_TURNED(wgmma_bf16_rows_turned, bf16, 256, 128, 0, 1, 128, 129, 130)
WGMMA_TURNED(wgmma_bf16_turned_rows, bf16, 64, 32, 1, 0, 32, 33, 34)
WGMMA_TURNED(wgmma_bf16_turned_rows, bf16, 128, 64, 1, 0, 64, 65, 66)
WGMMA_TURNED(wgmma_bf16_turned_rows, bf16, 256, 128, 1, 0, 128, 129, 130)
WGMMA_TURNED(wgmma_bf16_turned_turned, bf16, 64, 32, 1, 1, 32, 33, 34)
WGMMA_TURNED(wgmma_bf16_turned_turned, bf16, 128, 64, 1, 1, 64, 65, 66)
WGMMA_TURNED(wgmma_bf16_turned_turned, bf16, 256, 128, 1, 1, 128, 129, 130)

#undef WGMMA_TURNED

} // namespace ptx
