/* A loop on several threads. */
#pragma once

#include <stddef.h>

enum { PARALLEL_THREADS_MOST = 256 };

/* Calls work(context, index, thread) for every index below `count`, on up to `threads` threads, of which the caller is
 * one, and returns when all calls have. Indices are taken in order; `thread` is below `threads` and no two calls that
 * overlap have the same. Where threads cannot be started, fewer do the work. */
void parallel_run(unsigned threads, size_t count, void (*work)(void *context, size_t index, unsigned thread),
                  void *context);
