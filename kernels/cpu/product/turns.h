/* Jobs that take long, computed a turn at a time: each by a unit with a thread of its own (see pause.h). At most so
 * many are under way at once, and with them their memory. */
#pragma once

#include "unit.h"

enum { CPU_TURNS = 16 };

struct backend_turns {
  bool taken;
  struct cpu_pause *pause; /* owned; NULL: not started yet */
  struct cpu_unit unit;
  /* What may change while it pauses is its own: which kernels compute it. */
  struct backend_job job;
  struct backend_step steps[GEMM_STEPS_MOST];
  struct variant variants[GEMM_STEPS_MOST];
  uint64_t took_ns;
};

struct cpu_turns {
  uint64_t longest_ns; /* of those that have given their thread back */
  struct backend_turns all[CPU_TURNS];
};

/* Nothing is computed yet. `job` stays until it has ended. BUSY where `most` are under way, or CPU_TURNS; NOMEM,
 * SYSTEM. */
MUST_CHECK enum status cpu_turns_begin(struct cpu_turns *turns, const struct product_engine *engine,
                                       const struct backend_job *job, uint32_t most, struct backend_turns **out,
                                       struct error *error);
/* Computes for about `budget_ns`. True: it has ended, and done->device_ns is of all its turns; else of this one. */
bool cpu_turns_next(struct backend_turns *turns, uint64_t budget_ns, struct backend_done *done, struct error *error);
/* The longest stretch without a pause that was predicted so far. */
uint64_t cpu_turns_longest_ns(const struct cpu_turns *turns);
uint64_t cpu_turns_bytes(const struct cpu_turns *turns);
/* Gives back what those have that are not under way. */
void cpu_turns_rest(struct cpu_turns *turns);
