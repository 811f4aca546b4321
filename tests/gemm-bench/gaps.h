/* What a machine that takes its cores away now and then costs whoever arrives at random times. Pure. */
#pragma once

#include "histogram.h"

#include <stddef.h>
#include <stdint.h>

/* Time that was taken away, from the beginning of the run. */
struct gap {
  uint64_t begin_ns, end_ns;
};

/* Gaps of several threads, in any order, become those in which at least one did not run: in order, apart from each
 * other. In place; returns how many. */
size_t gaps_merge(struct gap *gaps, size_t count);

/* How long work of `work_ns` takes that proceeds outside the gaps alone, for arrivals spread evenly over `run_ns`: what
 * comes at random times sees each moment as often. Nobody waits for another's work, so a server of the same speed
 * cannot do better. Gaps as gaps_merge leaves them. */
void gaps_tail(const struct gap *gaps, size_t count, uint64_t run_ns, uint64_t work_ns, struct histogram *out);

/* Their sum. */
uint64_t gaps_total(const struct gap *gaps, size_t count);
