/* Whether a device's sparse matrix instructions do what INT2 tiles ask of them (int2/layout.h). PTX promises a result
 * for metadata whose two indices of four rows ascend; W's codes make any. */
#pragma once

#include "../../../linkage.h"

#include <driver_types.h>
#include <stdbool.h>

C_LINKAGE_BEGIN

/* Tries the current device, of compute capability 9.0, with every nibble at every place, and waits for the answer: far
 * less than a millisecond beside loading the kernel. `right` is false where it cannot be tried, too. */
cudaError_t places_check(bool *right);

C_LINKAGE_END
