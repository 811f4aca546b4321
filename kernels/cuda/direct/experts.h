/* Jobs of enqueue over experts. */
#pragma once

#include "../state.h"

/* In the backend's context; the job has been checked. */
MUST_CHECK enum status direct_experts(struct backend *backend, const struct slot *lane, const struct backend_job *job,
                                      cudaStream_t stream, struct error *error);
