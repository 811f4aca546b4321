/* Launcher of int4_many/kernel.cuh. */
#pragma once

#include "../../../linkage.h"
#include "../int2_many/launch.h"
#include "../int4/form.h"
#include "config.h"

C_LINKAGE_BEGIN

/* As int2_many_launch; product->x_type tells INT4A8 from INT4. */
cudaError_t int4_many_launch(cudaStream_t stream, const struct int2_many_config *config,
                             const struct int2_many_plan *plan, enum int4_many_kind kind, const struct int4_form *form,
                             const struct tiles_product *product, const CUtensorMap *x, bool dependent, bool together);

C_LINKAGE_END
