/* Graphs of products that are measured again and again: to make one takes as long as what it measures, and to turn one
 * to where operands lie now a fraction of that. Of one shape at a time, by kernel. */
#pragma once

#include "../../state.h"

/* *out: one that does what was captured. It is the backend's, until the next call. */
MUST_CHECK enum status measured_graph(struct backend *, const struct backend_job *, const struct backend_timing *,
                                      cudaGraph_t captured, cudaGraphExec_t *out, struct error *);
bool measured_keeps(const struct backend *, cudaGraphExec_t);
/* Of all; those that are needed again are made anew. */
void measured_close(struct backend *);
