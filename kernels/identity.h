/* What measured times depend on, as a name for folders. Pure. */
#pragma once

#include <stddef.h>

/* "cpu-amd-epyc-9b14-2-threads-avx512-k0123456789ab": `parts` with everything but letters, digits, `.` and `_` as `-`,
 * then a hash of the kernels' source. */
void identity_make(const char *parts, char *out, size_t bytes);
