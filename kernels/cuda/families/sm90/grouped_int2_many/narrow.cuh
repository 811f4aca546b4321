// Matrix instructions of few columns beside those of wgmma_between.cuh; included before that, whose macros they take
// and whose names the products of int2_many/kernel.cuh look up where they stand.
#pragma once

#include "../../../device/wgmma.cuh"

namespace ptx {

WGMMA_REGISTERS(wgmma_s8, int, "+r", "m64n8k32.s32.s8.s8", "", 4, 4, 5, 6, 7, 8, 9)
WGMMA_REGISTERS(wgmma_s8, int, "+r", "m64n16k32.s32.s8.s8", "", 8, 8, 9, 10, 11, 12, 13)

WGMMA_SPARSE(wgmma_sparse_f16_lower, 0, "m64n8k32.f32.f16.f16", 4, 4, 5, 6, 7, 8, 9, 10)
WGMMA_SPARSE(wgmma_sparse_f16_upper, 1, "m64n8k32.f32.f16.f16", 4, 4, 5, 6, 7, 8, 9, 10)

} // namespace ptx
