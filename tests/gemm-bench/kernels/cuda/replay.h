/* A graph of equal launches, and what one of them takes. */
#pragma once

#include "proto/status.h"

#include <cuda_runtime_api.h>

struct replay {
  cudaGraphExec_t graph; /* owned; NULL: none */
  int launches;
};

/* Captures `queue(what, i)` for i from 0 on; whatever it queues must go to the stream. */
MUST_CHECK enum status replay_make(cudaStream_t stream, int launches,
                                   enum status (*queue)(void *what, int i, struct error *error), void *what,
                                   struct replay *out, struct error *error);
void replay_free(struct replay *replay);
/* Replays it once. *us: of a launch. */
MUST_CHECK enum status replay_time(const struct replay *replay, cudaStream_t stream, double *us, struct error *error);
