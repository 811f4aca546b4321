/* Products in the caller's memory and on the caller's stream (backend_ops.enqueue). x, bias and y are used where they
 * lie; what is made on the way lies in the staging memory of the lane. Nothing here waits, allocates, or touches what
 * another lane uses. */
#pragma once

#include "../state.h"

/* All kernels of one product, without a look at lane, stream and types; the context is current. */
MUST_CHECK enum status direct_queue(struct backend *backend, const struct slot *lane, const struct backend_job *job,
                                    cudaStream_t stream, struct error *error);

enum status cuda_enqueue(struct backend *, int, const struct backend_job *, void *, struct error *);
