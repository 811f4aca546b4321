/* Kernels that no test has seen: they run in a process of their own first. */
#pragma once

#include "tuner_state.h"

/* Whether the variant has to be proven in a process of its own first, as candidate `who` of the race, 0 for what is
 * given; if so, that is what comes next. */
bool tuner_proof_needed(struct tuner *tuner, const struct variant *variant, int who);
/* In PHASE_PROOF: starts and hears the process while it is quiet. Returns as tuner_step does. */
uint64_t tuner_proof_step(struct tuner *tuner, uint64_t now_ns, bool quiet);
