/* Rows of x, sorted by expert, as grouped kernels read them: where they go (route.h) and what becomes of them. */
#ifndef KERNELS_CUDA_EXPERTS_GATHER_H
#define KERNELS_CUDA_EXPERTS_GATHER_H

#include "gather_pass.h"

#include <driver_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Up to so many pairs every block finds its own rows' places, in one kernel with the rest. */
enum { GATHER_AT_ONCE = 4096 };

cudaError_t launch_gather(cudaStream_t stream, const struct gather_pass *pass);
/* One kernel of the file, which leads to the others. */
const void *kernel_of_gather(void);

#ifdef __cplusplus
}
#endif
#endif
