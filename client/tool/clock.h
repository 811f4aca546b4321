/* CLOCK_MONOTONIC in nanoseconds, for programs. */
#ifndef CLIENT_TOOL_CLOCK_H
#define CLIENT_TOOL_CLOCK_H

#include <errno.h>
#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void clock_sleep_until(uint64_t ns) {
  struct timespec until = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
    ;
}

static inline void clock_sleep(uint64_t ns) {
  clock_sleep_until(clock_ns() + ns);
}

#endif
