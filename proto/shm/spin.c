#include "spin.h"

/* A wait counts for at most so many times `most_ns`: one long pause must not undo what many short waits have taught. */
enum { CAP = 4, SHARE = 8 };

void spin_init(struct spin *spin, uint64_t most_ns) {
  *spin = (struct spin){.most_ns = most_ns, .typical_ns = most_ns / 2};
}

uint64_t spin_budget(const struct spin *spin) {
  uint64_t twice = 2 * spin->typical_ns, budget = twice > SPIN_WORTH_NS ? twice : SPIN_WORTH_NS;
  if (spin->typical_ns > spin->most_ns)
    budget = SPIN_LEAST_NS;
  return budget < spin->most_ns ? budget : spin->most_ns;
}

void spin_learn(struct spin *spin, uint64_t waited_ns) {
  uint64_t counted = waited_ns < CAP * spin->most_ns ? waited_ns : CAP * spin->most_ns;
  spin->typical_ns = spin->typical_ns - spin->typical_ns / SHARE + counted / SHARE;
}
