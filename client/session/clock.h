/* Time and poll with deadlines; private. Nanoseconds of CLOCK_MONOTONIC. */
#pragma once

#include <poll.h>
#include <stdint.h>

#define CLOCK_NEVER INT64_MAX
#define CLOCK_NS_PER_MS INT64_C(1000000)
#define CLOCK_NS_PER_US INT64_C(1000)

int64_t clock_now(void);
/* `ns` from now; CLOCK_NEVER where ns is negative. */
int64_t clock_deadline(int64_t ns);
/* poll() until the deadline, signals notwithstanding. Returns what poll returns: 0 at the deadline, -1 with errno. */
int clock_poll(struct pollfd *fds, nfds_t count, int64_t deadline);
