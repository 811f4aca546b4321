// Hopper's warpgroup matrix instruction by width: d[64, N] = a[64, K] * b[N, K]^T, plus d where `add`, K 32 bytes.
// Thread t of the warpgroup holds of d rows 16 * (t / 32) + t % 32 / 4 and 8 below it: for each 8 columns two
// neighbours of each row, so N / 2 numbers. `a` and `b` are descriptors of shared memory, see ptx::swizzled_descriptor,
// or `a` is the thread's own registers.
#pragma once

#include <cstdint>

namespace ptx {

// The first COUNT operands of an instruction, which are d, and the numbers they stand for with their constraint c.
#define WGMMA_NAMES_4 "%0, %1, %2, %3"
#define WGMMA_NAMES_8 WGMMA_NAMES_4 ", %4, %5, %6, %7"
#define WGMMA_NAMES_16 WGMMA_NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_NAMES_32 WGMMA_NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_NAMES_48 WGMMA_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define WGMMA_NAMES_64 WGMMA_NAMES_48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_NAMES_56 WGMMA_NAMES_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define WGMMA_NAMES_60 WGMMA_NAMES_56 ", %56, %57, %58, %59"
#define WGMMA_NAMES_68 WGMMA_NAMES_64 ", %64, %65, %66, %67"
#define WGMMA_NAMES_72 WGMMA_NAMES_68 ", %68, %69, %70, %71"
#define WGMMA_NAMES_128                                                                                                \
  WGMMA_NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "                  \
                 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "                    \
                 "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "        \
                 "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

#define WGMMA_SUMS_4(c, i) c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3])
#define WGMMA_SUMS_8(c, i) WGMMA_SUMS_4(c, i), WGMMA_SUMS_4(c, i + 4)
#define WGMMA_SUMS_16(c, i) WGMMA_SUMS_8(c, i), WGMMA_SUMS_8(c, i + 8)
#define WGMMA_SUMS_32(c, i) WGMMA_SUMS_16(c, i), WGMMA_SUMS_16(c, i + 16)
#define WGMMA_SUMS_48(c, i) WGMMA_SUMS_32(c, i), WGMMA_SUMS_16(c, i + 32)
#define WGMMA_SUMS_64(c, i) WGMMA_SUMS_32(c, i), WGMMA_SUMS_32(c, i + 32)
#define WGMMA_SUMS_56(c, i) WGMMA_SUMS_48(c, i), WGMMA_SUMS_8(c, i + 48)
#define WGMMA_SUMS_60(c, i) WGMMA_SUMS_56(c, i), WGMMA_SUMS_4(c, i + 56)
#define WGMMA_SUMS_68(c, i) WGMMA_SUMS_64(c, i), WGMMA_SUMS_4(c, i + 64)
#define WGMMA_SUMS_72(c, i) WGMMA_SUMS_64(c, i), WGMMA_SUMS_8(c, i + 64)
#define WGMMA_SUMS_128(c, i) WGMMA_SUMS_64(c, i), WGMMA_SUMS_64(c, i + 64)

// NAME(d, a, b, add) with both operands in shared memory. SHAPE is m64nNkK with the types of d, a and b, SIGNS what
// follows the predicate; A, B and ADD are the operands' places, which follow the COUNT of d.
#define WGMMA_SHARED(NAME, TYPE, C, SHAPE, SIGNS, COUNT, A, B, ADD)                                                    \
  __device__ inline void NAME(TYPE(&d)[COUNT], uint64_t a, uint64_t b, bool add) {                                     \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #ADD ", 0;\n"                                                    \
                 "wgmma.mma_async.sync.aligned." SHAPE " {" WGMMA_NAMES_##COUNT "}, %" #A ", %" #B ", p" SIGNS ";\n}"  \
                 : WGMMA_SUMS_##COUNT(C, 0)                                                                            \
                 : "l"(a), "l"(b), "r"(static_cast<int>(add)));                                                        \
  }

// The same with four registers of `a` in each thread.
#define WGMMA_REGISTERS(NAME, TYPE, C, SHAPE, SIGNS, COUNT, A0, A1, A2, A3, B, ADD)                                    \
  __device__ inline void NAME(TYPE(&d)[COUNT], const uint32_t(&a)[4], uint64_t b, bool add) {                          \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #ADD ", 0;\n"                                                    \
                 "wgmma.mma_async.sync.aligned." SHAPE " {" WGMMA_NAMES_##COUNT "}, {%" #A0 ", %" #A1 ", %" #A2        \
                                                                                ", %" #A3 "}, %" #B ", p" SIGNS ";\n}" \
                 : WGMMA_SUMS_##COUNT(C, 0)                                                                            \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));                    \
  }

// The same where d is always added to.
#define WGMMA_ADDS(NAME, TYPE, C, SHAPE, COUNT, A0, A1, A2, A3, B)                                                     \
  __device__ inline void NAME(TYPE(&d)[COUNT], const uint32_t(&a)[4], uint64_t b) {                                    \
    asm volatile("wgmma.mma_async.sync.aligned." SHAPE " {" WGMMA_NAMES_##COUNT "}, {%" #A0 ", %" #A1 ", %" #A2        \
                                                                                ", %" #A3 "}, %" #B ", 1;"             \
                 : WGMMA_SUMS_##COUNT(C, 0)                                                                            \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                                \
  }

// Sparse products: a[64, 2 K] has two of every four, whose places are the bits of `places` in two lanes of each four,
// the lower ones (SELECTOR 0) or the upper (1), and b lies as ptx::core_descriptor has it.
#define WGMMA_SPARSE(NAME, SELECTOR, SHAPE, COUNT, A0, A1, A2, A3, B, PLACES, ADD)                                     \
  __device__ inline void NAME(float(&d)[COUNT], const uint32_t(&a)[4], uint64_t b, uint32_t places, bool add) {        \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #ADD ", 0;\n"                                                    \
                 "wgmma.mma_async.sp.sync.aligned." SHAPE " {" WGMMA_NAMES_##COUNT                                     \
                 "}, {%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", %" #PLACES ", " #SELECTOR ", p, 1, 1, 1;\n}"   \
                 : WGMMA_SUMS_##COUNT("+f", 0)                                                                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(places), "r"(static_cast<int>(add)));       \
  }

#define WGMMA_F32 "+f"
#define WGMMA_S32 "+r"

WGMMA_SHARED(wgmma_e4m3, float, WGMMA_F32, "m64n8k32.f32.e4m3.e4m3", ", 1, 1", 4, 4, 5, 6)
WGMMA_SHARED(wgmma_e4m3, float, WGMMA_F32, "m64n16k32.f32.e4m3.e4m3", ", 1, 1", 8, 8, 9, 10)
WGMMA_SHARED(wgmma_e4m3, float, WGMMA_F32, "m64n32k32.f32.e4m3.e4m3", ", 1, 1", 16, 16, 17, 18)
WGMMA_SHARED(wgmma_e4m3, float, WGMMA_F32, "m64n64k32.f32.e4m3.e4m3", ", 1, 1", 32, 32, 33, 34)
WGMMA_SHARED(wgmma_e4m3, float, WGMMA_F32, "m64n96k32.f32.e4m3.e4m3", ", 1, 1", 48, 48, 49, 50)
WGMMA_SHARED(wgmma_e4m3, float, WGMMA_F32, "m64n112k32.f32.e4m3.e4m3", ", 1, 1", 56, 56, 57, 58)
WGMMA_SHARED(wgmma_e4m3, float, WGMMA_F32, "m64n120k32.f32.e4m3.e4m3", ", 1, 1", 60, 60, 61, 62)
WGMMA_SHARED(wgmma_e4m3, float, WGMMA_F32, "m64n128k32.f32.e4m3.e4m3", ", 1, 1", 64, 64, 65, 66)
WGMMA_SHARED(wgmma_e4m3, float, WGMMA_F32, "m64n136k32.f32.e4m3.e4m3", ", 1, 1", 68, 68, 69, 70)
WGMMA_SHARED(wgmma_e4m3, float, WGMMA_F32, "m64n144k32.f32.e4m3.e4m3", ", 1, 1", 72, 72, 73, 74)

WGMMA_SHARED(wgmma_s8, int, WGMMA_S32, "m64n8k32.s32.s8.s8", "", 4, 4, 5, 6)
WGMMA_SHARED(wgmma_s8, int, WGMMA_S32, "m64n16k32.s32.s8.s8", "", 8, 8, 9, 10)
WGMMA_SHARED(wgmma_s8, int, WGMMA_S32, "m64n32k32.s32.s8.s8", "", 16, 16, 17, 18)
WGMMA_SHARED(wgmma_s8, int, WGMMA_S32, "m64n64k32.s32.s8.s8", "", 32, 32, 33, 34)
WGMMA_SHARED(wgmma_s8, int, WGMMA_S32, "m64n96k32.s32.s8.s8", "", 48, 48, 49, 50)
WGMMA_SHARED(wgmma_s8, int, WGMMA_S32, "m64n112k32.s32.s8.s8", "", 56, 56, 57, 58)
WGMMA_SHARED(wgmma_s8, int, WGMMA_S32, "m64n128k32.s32.s8.s8", "", 64, 64, 65, 66)
WGMMA_SHARED(wgmma_s8, int, WGMMA_S32, "m64n144k32.s32.s8.s8", "", 72, 72, 73, 74)
WGMMA_SHARED(wgmma_s8, int, WGMMA_S32, "m64n256k32.s32.s8.s8", "", 128, 128, 129, 130)

// 16-bit numbers, 16 of K.
WGMMA_SHARED(wgmma_f16, float, WGMMA_F32, "m64n8k16.f32.f16.f16", ", 1, 1, 0, 0", 4, 4, 5, 6)
WGMMA_SHARED(wgmma_f16, float, WGMMA_F32, "m64n16k16.f32.f16.f16", ", 1, 1, 0, 0", 8, 8, 9, 10)
WGMMA_SHARED(wgmma_f16, float, WGMMA_F32, "m64n32k16.f32.f16.f16", ", 1, 1, 0, 0", 16, 16, 17, 18)
WGMMA_SHARED(wgmma_f16, float, WGMMA_F32, "m64n64k16.f32.f16.f16", ", 1, 1, 0, 0", 32, 32, 33, 34)
WGMMA_SHARED(wgmma_f16, float, WGMMA_F32, "m64n96k16.f32.f16.f16", ", 1, 1, 0, 0", 48, 48, 49, 50)
WGMMA_SHARED(wgmma_f16, float, WGMMA_F32, "m64n128k16.f32.f16.f16", ", 1, 1, 0, 0", 64, 64, 65, 66)
WGMMA_SHARED(wgmma_bf16, float, WGMMA_F32, "m64n8k16.f32.bf16.bf16", ", 1, 1, 0, 0", 4, 4, 5, 6)
WGMMA_SHARED(wgmma_bf16, float, WGMMA_F32, "m64n16k16.f32.bf16.bf16", ", 1, 1, 0, 0", 8, 8, 9, 10)
WGMMA_SHARED(wgmma_bf16, float, WGMMA_F32, "m64n32k16.f32.bf16.bf16", ", 1, 1, 0, 0", 16, 16, 17, 18)
WGMMA_SHARED(wgmma_bf16, float, WGMMA_F32, "m64n64k16.f32.bf16.bf16", ", 1, 1, 0, 0", 32, 32, 33, 34)
WGMMA_SHARED(wgmma_bf16, float, WGMMA_F32, "m64n96k16.f32.bf16.bf16", ", 1, 1, 0, 0", 48, 48, 49, 50)
WGMMA_SHARED(wgmma_bf16, float, WGMMA_F32, "m64n128k16.f32.bf16.bf16", ", 1, 1, 0, 0", 64, 64, 65, 66)

// Unsigned bytes of `a`: of each 16 of K a thread holds bytes 4 (t % 4) and on of its two rows.
WGMMA_ADDS(wgmma_u8_s8, int, WGMMA_S32, "m64n8k32.s32.u8.s8", 4, 4, 5, 6, 7, 8)
WGMMA_ADDS(wgmma_u8_s8, int, WGMMA_S32, "m64n16k32.s32.u8.s8", 8, 8, 9, 10, 11, 12)
WGMMA_ADDS(wgmma_u8_s8, int, WGMMA_S32, "m64n32k32.s32.u8.s8", 16, 16, 17, 18, 19, 20)

// The same of signed bytes.
WGMMA_REGISTERS(wgmma_s8, int, WGMMA_S32, "m64n32k32.s32.s8.s8", "", 16, 16, 17, 18, 19, 20, 21)
WGMMA_REGISTERS(wgmma_s8, int, WGMMA_S32, "m64n64k32.s32.s8.s8", "", 32, 32, 33, 34, 35, 36, 37)
WGMMA_REGISTERS(wgmma_s8, int, WGMMA_S32, "m64n128k32.s32.s8.s8", "", 64, 64, 65, 66, 67, 68, 69)

// 16-bit numbers of `a`: a thread holds elements 2 (t % 4) and the next, those of both its rows, and then those 8 of K
// further on.
WGMMA_REGISTERS(wgmma_f16, float, WGMMA_F32, "m64n16k16.f32.f16.f16", ", 1, 1, 0", 8, 8, 9, 10, 11, 12, 13)
WGMMA_REGISTERS(wgmma_f16, float, WGMMA_F32, "m64n32k16.f32.f16.f16", ", 1, 1, 0", 16, 16, 17, 18, 19, 20, 21)
WGMMA_REGISTERS(wgmma_f16, float, WGMMA_F32, "m64n64k16.f32.f16.f16", ", 1, 1, 0", 32, 32, 33, 34, 35, 36, 37)
WGMMA_REGISTERS(wgmma_f16, float, WGMMA_F32, "m64n128k16.f32.f16.f16", ", 1, 1, 0", 64, 64, 65, 66, 67, 68, 69)

WGMMA_REGISTERS(wgmma_bf16, float, WGMMA_F32, "m64n16k16.f32.bf16.bf16", ", 1, 1, 0", 8, 8, 9, 10, 11, 12, 13)
WGMMA_REGISTERS(wgmma_bf16, float, WGMMA_F32, "m64n32k16.f32.bf16.bf16", ", 1, 1, 0", 16, 16, 17, 18, 19, 20, 21)
WGMMA_REGISTERS(wgmma_bf16, float, WGMMA_F32, "m64n64k16.f32.bf16.bf16", ", 1, 1, 0", 32, 32, 33, 34, 35, 36, 37)
WGMMA_REGISTERS(wgmma_bf16, float, WGMMA_F32, "m64n128k16.f32.bf16.bf16", ", 1, 1, 0", 64, 64, 65, 66, 67, 68, 69)

WGMMA_SPARSE(wgmma_sparse_f16_lower, 0, "m64n16k32.f32.f16.f16", 8, 8, 9, 10, 11, 12, 13, 14)
WGMMA_SPARSE(wgmma_sparse_f16_lower, 0, "m64n32k32.f32.f16.f16", 16, 16, 17, 18, 19, 20, 21, 22)
WGMMA_SPARSE(wgmma_sparse_f16_lower, 0, "m64n64k32.f32.f16.f16", 32, 32, 33, 34, 35, 36, 37, 38)
WGMMA_SPARSE(wgmma_sparse_f16_upper, 1, "m64n16k32.f32.f16.f16", 8, 8, 9, 10, 11, 12, 13, 14)
WGMMA_SPARSE(wgmma_sparse_f16_upper, 1, "m64n32k32.f32.f16.f16", 16, 16, 17, 18, 19, 20, 21, 22)
WGMMA_SPARSE(wgmma_sparse_f16_upper, 1, "m64n64k32.f32.f16.f16", 32, 32, 33, 34, 35, 36, 37, 38)

#undef WGMMA_F32
#undef WGMMA_S32
#undef WGMMA_ADDS

} // namespace ptx
