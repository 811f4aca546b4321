/* Launches for the clock, as one graph. */
#ifndef KERNELS_CUDA_EXEC_MEASURE_H
#define KERNELS_CUDA_EXEC_MEASURE_H

#include "../state.h"

MUST_CHECK enum status measure_begin(cudaStream_t stream, struct error *error);
/* `status` is that of what was captured. */
MUST_CHECK enum status measure_end(cudaStream_t stream, enum status status, cudaGraphExec_t *out, struct error *error);
/* Replays it once. *ns: one of its `launches`. */
MUST_CHECK enum status measure_time(cudaStream_t stream, cudaGraphExec_t graph, uint32_t launches, uint64_t *ns,
                                    struct error *error);

#endif
