/* Rows of x, sorted by expert, as grouped kernels read them: where they go (route.h) and what becomes of them. */
#pragma once

#include "../linkage.h"
#include "gather_pass.h"

#include <driver_types.h>

C_LINKAGE_BEGIN

/* Up to so many pairs every block finds its own rows' places, in one kernel with the rest. */
enum { GATHER_AT_ONCE = 4096 };

cudaError_t launch_gather(cudaStream_t stream, const struct gather_pass *pass);

C_LINKAGE_END
