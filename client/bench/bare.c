#include "bare.h"

#include "clock.h"
#include "gaps.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

enum {
  THREADS = 2,
  GAPS_MOST = 1 << 18, /* of a thread */
  GAP_LEAST_NS = 1000, /* what passes between two readings is less, a cache that has gone cold included */
};

struct watch {
  int processor;      /* that it stays on; -1: none */
  _Atomic bool *full; /* one has seen all that it can keep: all end */
  struct gap *gaps;   /* [GAPS_MOST] */
  size_t count;
  uint64_t begin_ns, end_ns; /* the end is brought forward by who ends early */
};

static void *watch_run(void *argument) {
  struct watch *watch = argument;
  cpu_set_t own;
  CPU_ZERO(&own);
  if (watch->processor >= 0) {
    CPU_SET(watch->processor, &own);
    sched_setaffinity(0, sizeof own, &own);
  }
  uint64_t last = clock_ns();
  if (last - watch->begin_ns > GAP_LEAST_NS) /* it was late */
    watch->gaps[watch->count++] = (struct gap){0, last - watch->begin_ns};
  while (last < watch->end_ns && !atomic_load_explicit(watch->full, memory_order_relaxed)) {
    uint64_t now = clock_ns();
    if (now - last > GAP_LEAST_NS) {
      watch->gaps[watch->count++] = (struct gap){last - watch->begin_ns, now - watch->begin_ns};
      if (watch->count == GAPS_MOST)
        atomic_store(watch->full, true);
    }
    last = now;
  }
  watch->end_ns = last;
  return NULL;
}

/* Where there are no more processors than threads each has its own: the scheduler may leave both on one for a while,
 * which the machine cannot help. Returns how many threads to start, at most one a processor. */
static int choose_processors(int processors[THREADS]) {
  cpu_set_t usable;
  int count = sched_getaffinity(0, sizeof usable, &usable) == 0 ? CPU_COUNT(&usable) : 1, chosen = 0;
  for (int i = 0; i < THREADS; i++)
    processors[i] = -1;
  for (int i = 0; count > 1 && count <= THREADS && i < CPU_SETSIZE; i++)
    if (CPU_ISSET(i, &usable))
      processors[chosen++] = i;
  return count < THREADS ? count : THREADS;
}

/* Returns how many threads ran; their gaps lie one behind the other from the first's on. */
static int watch_all(struct watch watches[THREADS], struct gap *gaps, uint64_t run_ns) {
  pthread_t threads[THREADS];
  _Atomic bool full = false;
  int processors[THREADS], wanted = choose_processors(processors), started = 0;
  uint64_t begin_ns = clock_ns();
  for (; started < wanted; started++) {
    watches[started] = (struct watch){
        .full = &full, .gaps = gaps + (size_t)started * GAPS_MOST, .begin_ns = begin_ns, .end_ns = begin_ns + run_ns};
    if (pthread_create(&threads[started], NULL, watch_run, &watches[started]) != 0)
      break;
  }
  for (int i = 0; i < started; i++)
    pthread_join(threads[i], NULL);
  return started;
}

bool bare_measure(uint64_t work_ns, uint64_t run_ns, struct histogram *out, double *taken) {
  struct watch watches[THREADS];
  struct gap *gaps = malloc((size_t)THREADS * GAPS_MOST * sizeof *gaps);
  int threads = gaps != NULL ? watch_all(watches, gaps, run_ns) : 0;
  size_t count = 0;
  uint64_t ran_ns = UINT64_MAX;
  for (int i = 0; i < threads; i++) {
    for (size_t j = 0; j < watches[i].count; j++)
      gaps[count++] = watches[i].gaps[j];
    uint64_t own_ns = watches[i].end_ns - watches[i].begin_ns;
    ran_ns = own_ns < ran_ns ? own_ns : ran_ns;
  }
  if (threads > 0) {
    count = gaps_merge(gaps, count);
    gaps_tail(gaps, count, ran_ns, work_ns, out);
    *taken = (double)gaps_total(gaps, count) / (double)ran_ns;
  }
  free(gaps);
  return threads > 0;
}
