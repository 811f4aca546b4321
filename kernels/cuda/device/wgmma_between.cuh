// The matrix instructions of wgmma.cuh of widths between powers of two: with `a` in registers, and 8-bit ones that
// products over experts do not take.
#pragma once

#include "wgmma.cuh"

namespace ptx {

#define WGMMA_NAMES_12 WGMMA_NAMES_8 ", %8, %9, %10, %11"
#define WGMMA_NAMES_24 WGMMA_NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define WGMMA_NAMES_40 WGMMA_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define WGMMA_NAMES_52 WGMMA_NAMES_48 ", %48, %49, %50, %51"
#define WGMMA_SUMS_12(c, i) WGMMA_SUMS_8(c, i), WGMMA_SUMS_4(c, i + 8)
#define WGMMA_SUMS_24(c, i) WGMMA_SUMS_16(c, i), WGMMA_SUMS_8(c, i + 16)

#define WGMMA_SUMS_40(c, i) WGMMA_SUMS_32(c, i), WGMMA_SUMS_8(c, i + 32)
#define WGMMA_SUMS_52(c, i) WGMMA_SUMS_48(c, i), WGMMA_SUMS_4(c, i + 48)

WGMMA_SHARED(wgmma_e4m3, float, "+f", "m64n80k32.f32.e4m3.e4m3", ", 1, 1", 40, 40, 41, 42)
WGMMA_SHARED(wgmma_e4m3, float, "+f", "m64n104k32.f32.e4m3.e4m3", ", 1, 1", 52, 52, 53, 54)
WGMMA_SHARED(wgmma_s8, int, "+r", "m64n80k32.s32.s8.s8", "", 40, 40, 41, 42)

WGMMA_REGISTERS(wgmma_f16, float, "+f", "m64n24k16.f32.f16.f16", ", 1, 1, 0", 12, 12, 13, 14, 15, 16, 17)
WGMMA_REGISTERS(wgmma_f16, float, "+f", "m64n48k16.f32.f16.f16", ", 1, 1, 0", 24, 24, 25, 26, 27, 28, 29)
WGMMA_REGISTERS(wgmma_f16, float, "+f", "m64n96k16.f32.f16.f16", ", 1, 1, 0", 48, 48, 49, 50, 51, 52, 53)
WGMMA_REGISTERS(wgmma_f16, float, "+f", "m64n104k16.f32.f16.f16", ", 1, 1, 0", 52, 52, 53, 54, 55, 56, 57)
WGMMA_REGISTERS(wgmma_bf16, float, "+f", "m64n24k16.f32.bf16.bf16", ", 1, 1, 0", 12, 12, 13, 14, 15, 16, 17)
WGMMA_REGISTERS(wgmma_bf16, float, "+f", "m64n48k16.f32.bf16.bf16", ", 1, 1, 0", 24, 24, 25, 26, 27, 28, 29)
WGMMA_REGISTERS(wgmma_bf16, float, "+f", "m64n96k16.f32.bf16.bf16", ", 1, 1, 0", 48, 48, 49, 50, 51, 52, 53)
WGMMA_REGISTERS(wgmma_bf16, float, "+f", "m64n104k16.f32.bf16.bf16", ", 1, 1, 0", 52, 52, 53, 54, 55, 56, 57)
WGMMA_REGISTERS(wgmma_s8, int, "+r", "m64n48k32.s32.s8.s8", "", 24, 24, 25, 26, 27, 28, 29)
WGMMA_REGISTERS(wgmma_s8, int, "+r", "m64n96k32.s32.s8.s8", "", 48, 48, 49, 50, 51, 52, 53)
WGMMA_REGISTERS(wgmma_s8, int, "+r", "m64n112k32.s32.s8.s8", "", 56, 56, 57, 58, 59, 60, 61)

WGMMA_SPARSE(wgmma_sparse_f16_lower, 0, "m64n24k32.f32.f16.f16", 12, 12, 13, 14, 15, 16, 17, 18)
WGMMA_SPARSE(wgmma_sparse_f16_upper, 1, "m64n24k32.f32.f16.f16", 12, 12, 13, 14, 15, 16, 17, 18)

#undef WGMMA_SPARSE
#undef WGMMA_REGISTERS
#undef WGMMA_SHARED

} // namespace ptx
