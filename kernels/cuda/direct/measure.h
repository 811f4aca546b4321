/* Tuning in the process of who computes: direct products for the clock, on a stream of the backend's own. */
#pragma once

#include "../state.h"

/* As in struct backend_ops. */
enum status cuda_tensor_take(struct backend *, uint64_t, void **, struct error *);
void cuda_tensor_give(struct backend *, void *);
enum status cuda_tensor_copy(struct backend *, void *, const void *, uint64_t, struct error *);
/* measure, of a backend that computes for its caller. */
MUST_CHECK enum status direct_measure(struct backend *backend, const struct backend_job *job,
                                      struct backend_weight *const *weights, size_t count,
                                      const struct backend_timing *timing, uint64_t *ns, struct error *error);
