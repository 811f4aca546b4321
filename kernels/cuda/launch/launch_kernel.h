/* A kernel on its way: to the stream, or to where this thread holds kernels back. */
#pragma once

#include "../linkage.h"
#include "launch.h"

C_LINKAGE_BEGIN

struct launches;

/* Queues the kernel on a cudaStream_t, or holds it back where this thread holds that stream's kernels (launches.h).
 * `values` are those of its parameters, and are copied. Returns what a cudaError_t is. */
int launch_kernel(void *stream, const struct launch *launch, void **values);
/* The same, without holding it back. */
int launch_now(void *stream, const struct launch *launch, void **values);
/* What this thread holds kernels back in, from here on; NULL: in nothing. */
void launch_hold_in(struct launches *launches);
/* Starts what this thread holds back for the stream: something that is no kernel of ours is to be queued behind it. */
void launch_flush(void *stream);

C_LINKAGE_END
