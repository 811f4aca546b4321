/* What a direct product has to do with the thread that asks for it and with the graph that records it. */
#pragma once

#include "../state.h"

/* What the calling thread has current, and how strict captures of other threads are with it; and back. */
void *cuda_caller_save(void);
void cuda_caller_restore(void *saved);
/* A graph that is being captured on the stream retains the backend and all weights of the job. */
MUST_CHECK enum status direct_retain(struct backend *backend, const struct backend_job *job, cudaStream_t stream,
                                     struct error *error);
/* As in struct backend_ops. */
bool cuda_weight_held(const struct backend *, const struct backend_weight *);
bool cuda_held(const struct backend *);
