#include "bare.h"

#include "clock.h"
#include "gaps.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

enum {
  THREADS = 2,
  GAPS_MOST = 1 << 18, /* of a thread */
  GAP_LEAST_NS = 1000, /* what passes between two readings is less, a cache that has gone cold included */
};

struct watch {
  int processor; /* that it stays on; -1: none */
  uint64_t run_ns;
  _Atomic bool *full; /* one has seen all that it can keep: all end */
  struct gap *gaps;   /* [GAPS_MOST]; by the clock */
  size_t count;
  uint64_t begin_ns, end_ns; /* when it did begin and end */
};

static void *watch_run(void *argument) {
  struct watch *watch = argument;
  cpu_set_t own;
  CPU_ZERO(&own);
  if (watch->processor >= 0) {
    CPU_SET(watch->processor, &own);
    sched_setaffinity(0, sizeof own, &own);
  }
  uint64_t last = watch->begin_ns = clock_ns();
  while (last - watch->begin_ns < watch->run_ns && !atomic_load_explicit(watch->full, memory_order_relaxed)) {
    uint64_t now = clock_ns();
    if (now - last > GAP_LEAST_NS) {
      watch->gaps[watch->count++] = (struct gap){last, now};
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
  for (; started < wanted; started++) {
    watches[started] = (struct watch){
        .processor = processors[started], .run_ns = run_ns, .full = &full, .gaps = gaps + (size_t)started * GAPS_MOST};
    if (pthread_create(&threads[started], NULL, watch_run, &watches[started]) != 0)
      break;
  }
  for (int i = 0; i < started; i++)
    pthread_join(threads[i], NULL);
  return started;
}

/* Those of all threads from `from_ns` to `to_ns`, counted from there, to the front. Returns how many. */
static size_t collect(const struct watch *watches, int threads, uint64_t from_ns, uint64_t to_ns, struct gap *out) {
  size_t count = 0;
  for (int i = 0; i < threads; i++)
    for (size_t j = 0; j < watches[i].count; j++) {
      struct gap gap = watches[i].gaps[j];
      gap.begin_ns = gap.begin_ns > from_ns ? gap.begin_ns : from_ns;
      gap.end_ns = gap.end_ns < to_ns ? gap.end_ns : to_ns;
      if (gap.begin_ns < gap.end_ns)
        out[count++] = (struct gap){gap.begin_ns - from_ns, gap.end_ns - from_ns};
    }
  return gaps_merge(out, count);
}

void bare_measure(uint64_t work_ns, uint64_t run_ns, struct histogram *out, double *taken) {
  struct watch watches[THREADS];
  struct gap *gaps = malloc((size_t)THREADS * GAPS_MOST * sizeof *gaps);
  int threads = gaps != NULL ? watch_all(watches, gaps, run_ns) : 0;
  uint64_t from_ns = 0, to_ns = UINT64_MAX;
  for (int i = 0; i < threads; i++) {
    from_ns = watches[i].begin_ns > from_ns ? watches[i].begin_ns : from_ns;
    to_ns = watches[i].end_ns < to_ns ? watches[i].end_ns : to_ns;
  }
  if (threads > 0 && from_ns < to_ns) {
    size_t count = collect(watches, threads, from_ns, to_ns, gaps);
    gaps_tail(gaps, count, to_ns - from_ns, work_ns, out);
    *taken = (double)gaps_total(gaps, count) / (double)(to_ns - from_ns);
  }
  free(gaps);
}
