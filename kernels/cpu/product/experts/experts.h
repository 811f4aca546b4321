/* Jobs over weights with experts: pairs of a row and an expert in the order of their experts, the rows of each computed
 * as the dense job that they are, and y put together of them. */
#pragma once

#include "../../../backend.h"
#include "../product.h"

/* Zeros at first. Memory that is kept from job to job. */
struct experts {
  void *memory; /* owned */
  uint64_t bytes;
  uint32_t skipped; /* pairs of the last job whose id is no expert; saturates */
};

/* How one dense job, a product or a sequence, is computed. */
struct experts_device {
  void *context;
  enum status (*run)(void *context, const struct backend_job *job, struct error *error);
  struct product_engine *engine; /* pool and pauses */
};

/* y has the bits that each pair has as a dense product by itself. INVALID: T; NOMEM; what the device says. */
MUST_CHECK enum status cpu_experts_run(struct experts *experts, const struct experts_device *device,
                                       const struct backend_job *job, struct error *error);
void cpu_experts_free(struct experts *experts);
