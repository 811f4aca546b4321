/* How long to look at a shared word before sleeping on a descriptor. Who waits learns from its own waits: about twice
 * what is usual is worth spinning for, and never less than what sleeping and being woken would cost both sides; but
 * where waits are usually longer than it may spin at all, spinning is a waste and it sleeps at once but for a moment.
 * Pure; one thread. */
#pragma once

#include <stdint.h>

#define SPIN_LEAST_NS 2000u  /* about what going to sleep costs by itself */
#define SPIN_WORTH_NS 50000u /* with being woken: an eventfd's write, and a core that comes back from its own sleep */

struct spin {
  uint64_t most_ns;    /* 0: never spins */
  uint64_t typical_ns; /* a moving average */
};

/* Begins hopeful: the first waits spin for `most_ns`. */
void spin_init(struct spin *spin, uint64_t most_ns);
/* How long the next wait may spin. */
uint64_t spin_budget(const struct spin *spin);
/* A wait, spinning and sleeping together, took so long. */
void spin_learn(struct spin *spin, uint64_t waited_ns);
