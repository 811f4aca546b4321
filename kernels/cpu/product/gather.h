/* Jobs that are computed as one product: their rows behind each other in memory of our own, and y back. */
#pragma once

#include "../../backend.h"

struct gather {
  void *memory; /* owned */
  uint64_t bytes;
};

/* Copies x and its scales of all jobs of the chain; *out is a job over these rows whose y lies here, too. NOMEM. */
MUST_CHECK enum status cpu_gather(struct gather *gather, const struct backend_job *chain, struct backend_job *out,
                                  struct error *error);
/* Copies y of the job that cpu_gather made to the jobs of the chain. */
void cpu_scatter(const struct backend_job *from, const struct backend_job *chain);
void cpu_gather_free(struct gather *gather);
