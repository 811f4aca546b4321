/* What the machine takes by itself from a program that waits for nothing. */
#ifndef BENCH_BARE_H
#define BENCH_BARE_H

#include "histogram.h"

/* For `run_ns`: how long stretches of `work_ns` of reading the clock take. Time that passes unseen between two readings
 * is work only as far as that takes, and the rest was the machine's: other programs, interrupts, a hypervisor. */
void bare_measure(uint64_t work_ns, uint64_t run_ns, struct histogram *out);

#endif
