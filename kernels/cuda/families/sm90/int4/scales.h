/* Launcher of scales.cu. */
#pragma once

#include "../../../linkage.h"
#include "form.h"

#include <driver_types.h>

C_LINKAGE_BEGIN

/* Writes 1 to *out (memory of the device) where the weight in these tiles has a scale that int4_many's numbers that are
 * multiplied by theirs do not hold: INT4's beyond 2^12, or in bf16 below 2^-17, where f16 ends; MXFP4's but 0, which
 * what is padded has, out of 2^-23..2. Else 0. */
cudaError_t launch_int4_scales(cudaStream_t stream, const void *tiles, uint64_t bytes, const struct int4_form *form,
                               enum gemm_type scale_type, uint64_t *out);

C_LINKAGE_END
