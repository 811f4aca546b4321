/* What a daemon without shared memory would cost at least: a byte to another process and back, both asleep while they
 * wait, over a Unix socket. */
#pragma once

#include "histogram.h"

#include <stdbool.h>

/* As many as fit into a fifth of a second, at most 2000, with `pause_ns` between. False where a system call failed. */
bool roundtrip_measure(uint64_t pause_ns, struct histogram *histogram);
