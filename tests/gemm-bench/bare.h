/* What the machine takes by itself from programs that wait for nothing. */
#pragma once

#include "histogram.h"

/* For `run_ns`, or until it has seen as much as it can keep, as many threads as a call needs awake, its client's and
 * its worker's, do nothing but read the clock. *out: what calls at random times would take, if each were `work_ns` of
 * what both can do at the same time (see gaps_tail). *taken: the part of the time in which they could not. Both stay as
 * they are where there is no memory, or the machine lets the threads run at no time together. */
void bare_measure(uint64_t work_ns, uint64_t run_ns, struct histogram *out, double *taken);
