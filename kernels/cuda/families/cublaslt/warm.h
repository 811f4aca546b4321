/* What cuBLASLt makes at first use, made ahead by a thread: tables for each pair of types that it is asked about (up to
 * 115 ms and 124 MiB of the host's memory each), and its kernels' code on the device. See NOTES.md. */
#pragma once

#include "library.h"

#include <pthread.h>
#include <stdatomic.h>

struct library_warmer {
  struct library library; /* the thread's own */
  int device;             /* the runtime's number of it */
  pthread_t thread;
  bool started;
  _Atomic bool stop;
};

/* Starts the thread, which ends by itself. `like` is what products will be asked of. Where it fails products are served
 * all the same, the first of their types later. Zeros are a warmer that was never started. */
void library_warm_begin(const char *path, const struct library *like, int device, struct library_warmer *out);
/* Waits for the thread, a product of its list at most, and gives back what is its own. */
void library_warm_end(struct library_warmer *warmer);
