/* Few pairs, sorted by their experts: all of a step in one run of the threads, so that they wait for one another once a
 * step and not once an expert. */
#pragma once

#include "../../../backend.h"
#include "../product.h"
#include "pairs.h"

/* The most that are computed so. */
enum { FUSED_PAIRS = PRODUCT_SOURCES };

/* Whether this job is, for `pairs` at a time: not where kernels are named, nor with pauses, and not rows so long that
 * there is no room for all of them. */
bool cpu_fused_takes(const struct product_engine *engine, const struct backend_job *job, int64_t pairs);
/* Bytes that it needs beside y. */
uint64_t cpu_fused_bytes(const struct backend_job *job, int64_t pairs);

/* y, dense rows of the sorted pairs of the job's rows from `first` on. `memory` as cpu_fused_bytes says. NOMEM. */
MUST_CHECK enum status cpu_fused_run(struct product_engine *engine, const struct backend_job *job,
                                     const struct pairs *pairs, int64_t first, void *y, void *memory,
                                     struct error *error);
