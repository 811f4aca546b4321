/* Products for the clock. */
#pragma once

#include "../../state.h"

/* As in struct backend_ops. */
enum status cuda_measure(struct backend *, const struct backend_job *, struct backend_weight *const *, size_t,
                         const struct backend_timing *, uint64_t *, struct error *);

/* Launches for the clock, as one graph: between the two they are captured. `status` is theirs. */
MUST_CHECK enum status measure_begin(cudaStream_t stream, struct error *error);
MUST_CHECK enum status measure_end(cudaStream_t stream, enum status status, cudaGraphExec_t *out, struct error *error);
/* Replays it once. *ns: one of its `launches`. */
MUST_CHECK enum status measure_time(cudaStream_t stream, cudaGraphExec_t graph, uint32_t launches, uint64_t *ns,
                                    struct error *error);
