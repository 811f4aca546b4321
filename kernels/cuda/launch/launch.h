/* One kernel as it is queued: what the launchers fill in. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Of one kernel's parameters: how many, how each is aligned where it is kept, and bytes of all. */
enum { LAUNCH_PARAMETERS = 8, LAUNCH_ALIGN = 64, LAUNCH_BYTES = 4096 };

struct launch {
  const void *function;
  uint32_t grid[3], block[3], cluster[3]; /* a cluster of zeros: none */
  uint32_t shared_bytes;
  bool dependent;   /* may start before the kernel ahead has ended */
  bool cooperative; /* its blocks wait for each other */
  uint32_t parameter_count;
  uint32_t parameter_bytes[LAUNCH_PARAMETERS];
};
