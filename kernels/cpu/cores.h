/* Which processors the pool's threads run on. */
#pragma once

#include "../../proto/status.h"

#include <sched.h>

enum { CPU_CORES_MOST = 256 };

struct cpu_cores {
  int count;                      /* 0: wherever the system likes */
  int processors[CPU_CORES_MOST]; /* one a thread, as the system numbers them */
  cpu_set_t home;                 /* all processors of their NUMA node, for the process's other threads */
  bool at_home;                   /* there is one node, and `home` is it */
};

/* `pin`: NULL or "": none. "cores": the first processor of each core, node after node. "nodes": those of NUMA node
 * `device` (of as many as there are, in turn). A list such as "0-3,8": these. What this process may not use is not
 * there. `synthetic`: a machine in hwloc's notation in place of this one, NULL: this one. UNSUPPORTED where libhwloc
 * cannot be opened; INVALID where the list is none or names a processor that is not there. */
MUST_CHECK enum status cpu_cores_choose(const char *pin, int device, const char *synthetic, struct cpu_cores *out,
                                        struct error *error);
/* Keeps the calling thread on the processor of thread `thread` of the pool. */
void cpu_cores_pin(const struct cpu_cores *cores, int thread);
