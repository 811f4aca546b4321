/* A sequence of products: rows go through all steps, a few hundred at a time, in memory of our own. */
#pragma once

#include "../../backend.h"
#include "product.h"

struct sequence {
  void *memory; /* owned */
  uint64_t bytes;
};

/* Columns of y of a job, be it one product or a sequence. */
int64_t cpu_job_columns(const struct backend_job *job);

/* Columns of what a step gives, and whether that is more than its product. */
int64_t cpu_step_columns(const struct backend_step *step);
bool cpu_step_activates(const struct backend_step *step);

struct sequence_device {
  struct product_engine *engine;
  enum status (*run)(void *engine, const struct backend_job *job, struct error *error); /* one product */
};

/* NOMEM; UNSUPPORTED where a weight does not take the type that comes before it. */
MUST_CHECK enum status cpu_sequence_run(struct sequence *sequence, const struct sequence_device *device,
                                        const struct backend_job *job, struct error *error);
void cpu_sequence_free(struct sequence *sequence);
