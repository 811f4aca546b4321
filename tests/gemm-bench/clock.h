/* Sleeping by proto/clock.h. */
#pragma once

#include "../../proto/clock.h"

#include <errno.h>

static inline void clock_sleep_until(uint64_t ns) {
  struct timespec until = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
    ;
}

static inline void clock_sleep(uint64_t ns) {
  clock_sleep_until(clock_ns() + ns);
}
