/* What computes one job at a time, be it one product, a sequence, several gathered, one that brings its W or one over
 * experts, with all the memory that this takes. */
#pragma once

#include "../../backend.h"
#include "experts/experts.h"
#include "gather.h"
#include "operand.h"
#include "product.h"
#include "sequence.h"

struct cpu_unit {
  struct product_engine engine;
  struct gather gather;
  struct sequence sequence;
  struct operand operand;
  struct experts experts; /* its `skipped` is of the last job, where that has experts */
};

/* The job with its chain. Its types have been checked. */
MUST_CHECK enum status cpu_unit_run(struct cpu_unit *unit, const struct backend_job *job, struct error *error);
/* How long that takes, rather too long than too short. */
uint64_t cpu_unit_predict_ns(const struct cpu_unit *unit, const struct backend_job *job);
/* Bytes that it has taken. */
uint64_t cpu_unit_bytes(const struct cpu_unit *unit);
/* Gives them back, while no job is under way. */
void cpu_unit_rest(struct cpu_unit *unit);
