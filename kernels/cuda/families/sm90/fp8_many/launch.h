/* Launcher of fp8_many/kernel.cuh. */
#pragma once

#include "../../../linkage.h"
#include "../hopper/product.h"
#include "config.h"

#include <cuda.h>
#include <driver_types.h>

C_LINKAGE_BEGIN

/* Queues the product, cut up as `plan` says for `config`. `w`, `x`: tensor maps of its operands, in boxes of
 * config->rows and plan->columns rows; no `w` for INT2A8, whose tiles product->w is. `dependent`: W may be read before
 * the kernel ahead in the stream has ended.
 */
cudaError_t fp8_many_launch(cudaStream_t stream, const struct fp8_many_config *config, const struct fp8_many_plan *plan,
                            const struct hopper_product *product, const CUtensorMap *w, const CUtensorMap *x,
                            bool dependent);

C_LINKAGE_END
