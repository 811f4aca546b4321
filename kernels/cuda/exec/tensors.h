/* Products of two tensors by kernels that take them as they lie (../tensors): the device's memory is read in place,
 * what lies in the host's is copied a piece at a time. */
#pragma once

#include "../state.h"

/* Where this is how the job is computed: its form has no other way, or both tensors lie in the device's memory and K is
 * so long that it pays, or its variant says so. */
bool tensors_serves(const struct backend *backend, const struct backend_job *job);
/* How many pieces such a job has, and makes room for what they use. NOMEM. */
MUST_CHECK enum status tensors_pieces(struct backend *backend, const struct backend_job *job, struct region *region,
                                      int64_t *pieces, struct error *error);
/* Queues a piece on the slot's stream. */
MUST_CHECK enum status tensors_queue(struct backend *backend, struct slot *slot, struct region *region, int64_t piece,
                                     struct error *error);
/* What all of it takes, about. */
uint64_t tensors_predict_ns(const struct backend *backend, const struct backend_job *job);
