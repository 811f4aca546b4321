/* Who waits for something of gemmd's asks again and again, and naps in between: some kernels run two processes that
 * wake each other up before any third on their core, for as long as they do, and the third may be the worker. */
#pragma once

#include <time.h>

/* 100 us. */
static inline void nap_shortly(void) {
  nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

/* 2 ms: for what takes a second and more. */
static inline void nap_longer(void) {
  nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}
