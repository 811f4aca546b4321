#include "bands.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS_MOST = 64 };

struct run {
  const struct bands *bands;
  atomic_bool stop;

  pthread_mutex_t mutex; /* guards what follows */
  pthread_cond_t ended;
  unsigned running;
  uint64_t next;
  uint64_t failed_band; /* UINT64_MAX: none */
  struct error error;
};

/* Bands are handed out in order and those under way are finished after a failure, so that the first bad band is
 * always found. */
static bool take_band(struct run *run, uint64_t *band) {
  pthread_mutex_lock(&run->mutex);
  *band = run->next;
  bool more = !atomic_load(&run->stop) && run->failed_band == UINT64_MAX && run->next < run->bands->count;
  if (more)
    run->next++;
  pthread_mutex_unlock(&run->mutex);
  return more;
}

static void note_failure(struct run *run, uint64_t band, const struct error *error) {
  pthread_mutex_lock(&run->mutex);
  if (band < run->failed_band) {
    run->failed_band = band;
    run->error = *error;
  }
  pthread_mutex_unlock(&run->mutex);
}

static void *thread_main(void *argument) {
  struct run *run = argument;
  struct error error = {0};
  void *scratch = malloc(run->bands->scratch_bytes);
  uint64_t band = 0;
  if (!scratch) {
    (void)error_set(&error, STATUS_NOMEM, "no memory for %zu bytes of a tensor", run->bands->scratch_bytes);
    note_failure(run, 0, &error);
  }
  while (scratch && take_band(run, &band))
    if (run->bands->work(run->bands->context, band, scratch, &error) != STATUS_OK)
      note_failure(run, band, &error);
  free(scratch);
  pthread_mutex_lock(&run->mutex);
  run->running--;
  pthread_cond_signal(&run->ended);
  pthread_mutex_unlock(&run->mutex);
  return NULL;
}

static void wait_tick(struct run *run) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += BANDS_TICK_MS * 1000000L;
  until.tv_sec += until.tv_nsec / 1000000000L;
  until.tv_nsec %= 1000000000L;
  while (run->running > 0 && pthread_cond_timedwait(&run->ended, &run->mutex, &until) != ETIMEDOUT)
    ;
}

static void watch_threads(struct run *run, struct watch *watch) {
  pthread_mutex_lock(&run->mutex);
  while (run->running > 0) {
    wait_tick(run);
    pthread_mutex_unlock(&run->mutex);
    if (watch->tick && !watch->tick(watch->user, atomic_load(&watch->done), watch->total))
      atomic_store(&run->stop, true);
    pthread_mutex_lock(&run->mutex);
  }
  pthread_mutex_unlock(&run->mutex);
}

static unsigned start_threads(struct run *run, pthread_t *threads, unsigned wanted) {
  unsigned started = 0;
  pthread_mutex_lock(&run->mutex);
  while (started < wanted && pthread_create(&threads[started], NULL, thread_main, run) == 0)
    started++;
  run->running = started;
  pthread_mutex_unlock(&run->mutex);
  return started;
}

static void run_open(struct run *run, const struct bands *bands) {
  pthread_condattr_t monotonic;
  *run = (struct run){.bands = bands, .failed_band = UINT64_MAX};
  pthread_mutex_init(&run->mutex, NULL);
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&run->ended, &monotonic);
  pthread_condattr_destroy(&monotonic);
}

enum status bands_run(const struct bands *bands, struct watch *watch, struct error *error) {
  struct run run;
  pthread_t threads[THREADS_MOST];
  unsigned wanted = bands->threads < THREADS_MOST ? bands->threads : THREADS_MOST;
  wanted = wanted < bands->count ? wanted : (unsigned)bands->count;
  run_open(&run, bands);
  unsigned started = start_threads(&run, threads, wanted > 0 ? wanted : 1);
  watch_threads(&run, watch);
  for (unsigned i = 0; i < started; i++)
    pthread_join(threads[i], NULL);
  pthread_cond_destroy(&run.ended);
  pthread_mutex_destroy(&run.mutex);
  if (started == 0)
    return error_set(error, STATUS_SYSTEM, "no thread could be started for the load");
  if (run.failed_band != UINT64_MAX) {
    *error = run.error;
    return run.error.status;
  }
  if (run.next < bands->count || atomic_load(&run.stop))
    return error_set(error, STATUS_CANCELLED, "the load was cancelled");
  return STATUS_OK;
}

unsigned bands_threads(void) {
  enum { MOST = 16 }; /* 32 on 32 cores wait for pages from the kernel: bf16 took 1.3 times as long */
  cpu_set_t cores;
  int count = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
  return count < 1 ? 1 : count < MOST ? (unsigned)count : MOST;
}
