/* A product by plain loops in f64 (INT8: exact integers), with nothing of the fast path but the layout of W: what tuned
 * kernels are compared with before they serve. */
#pragma once

#include "../../backend.h"
#include "../pool.h"
#include "pause.h"

/* Columns [first, first + count) of y, by so many threads of the pool, with pauses where `pause` is not NULL. */
MUST_CHECK enum status cpu_plain_run(struct cpu_pool *pool, int threads, struct cpu_pause *pause,
                                     const struct backend_job *job, int64_t first, int64_t count, struct error *error);
