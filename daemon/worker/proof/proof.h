/* Kernels that no test has seen run first in a process of their own, so that a fault in one costs nobody anything:
 * this is the side that starts it and hears what came of each. That process is prove.h's. One thread. */
#pragma once

#include "../../../kernels/variant.h"

#include <sys/types.h>

enum { PROOF_WHY_BYTES = 160 };

struct proof {
  pid_t pid;      /* 0: no process */
  bool ending;    /* it has been killed */
  int from;       /* its standard output */
  char line[256]; /* that is being read */
  size_t length;
  bool over; /* its output has ended */
};

enum proof_word {
  PROOF_NOTHING, /* yet */
  PROOF_RIGHT,
  PROOF_WRONG,   /* it computed something else, or does not compile, or took the process along */
  PROOF_REFUSED, /* the device does not take it, for this problem */
  PROOF_CANNOT,  /* nothing can be said, of this one and of all that follow: the process could not begin */
  PROOF_END,     /* the process is gone */
};

/* What is to be proven, and the thousandths of a core that compiling it may take. */
struct proof_task {
  const struct variant_problem *problem;
  const struct variant *list;
  int count;
  uint32_t share;
};

/* Starts `command` (NULL at the end), which gets the problem's name, the share and the variants' names, a line each, on
 * its standard input. SYSTEM with the reason. No process may be there. */
MUST_CHECK enum status proof_start(struct proof *proof, char *const *command, const struct proof_task *task,
                                   struct error *error);
/* What came of the next variant, with the reason in `why`; never waits. A process that dies says PROOF_END, and what
 * took it along is the variant that has no word yet. */
enum proof_word proof_next(struct proof *proof, char why[PROOF_WHY_BYTES]);
/* Kills it; it is gone when proof_next says so. */
void proof_stop(struct proof *proof);
/* Kills it and waits. */
void proof_close(struct proof *proof);
