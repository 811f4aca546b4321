/* Launcher of sums.cuh. */
#pragma once

#include "../linkage.h"
#include "product.h"

#include <driver_types.h>

C_LINKAGE_BEGIN

/* Behind the kernel that makes the partial sums. */
cudaError_t tensors_sums_launch(cudaStream_t stream, const struct tensors_sums *sums);

C_LINKAGE_END
