/* Launchers of the kernels that grouped_int2/config.h describes. */
#pragma once

#include "../../../linkage.h"
#include "../../tiles.h"
#include "config.h"

#include <driver_types.h>

C_LINKAGE_BEGIN

cudaError_t grouped_int2_launch(cudaStream_t stream, const struct grouped_int2_plan *plan,
                                const struct tiles_product *product, int sms, bool dependent);

C_LINKAGE_END
