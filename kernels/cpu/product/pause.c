#include "pause.h"

#include "../../../proto/clock.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { STACK_BYTES = 1 << 20 };

/* The owner writes while the thread waits for `go`, the thread while the owner waits for `back`. */
struct cpu_pause {
  pthread_t thread;
  sem_t go, back;
  cpu_work work; /* NULL: none is under way, or the thread is to end */
  void *context;
  uint64_t until_ns, longest_ns;
  bool abandoned, ended;
  enum status status;
  struct error error;
};

static void wait_for(sem_t *semaphore) {
  while (sem_wait(semaphore) != 0) {
  }
}

static void *run(void *argument) {
  struct cpu_pause *pause = argument;
  for (;;) {
    wait_for(&pause->go);
    if (pause->work == NULL) {
      return NULL;
    }
    pause->status = pause->work(pause->context, &pause->error);
    pause->ended = true;
    sem_post(&pause->back);
  }
}

/* Signals are for the threads that the worker process made for them. */
static int start_thread(struct cpu_pause *pause) {
  pthread_attr_t attributes;
  sigset_t all, before;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failed = pthread_create(&pause->thread, &attributes, run, pause);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  if (failed == 0) {
    pthread_setname_np(pause->thread, "gemmd-long");
  }
  return failed;
}

enum status cpu_pause_create(struct cpu_pause **out, struct error *error) {
  struct cpu_pause *pause = calloc(1, sizeof(*pause));
  if (pause == NULL) {
    return error_set(error, STATUS_NOMEM, "no memory for a product that takes long");
  }
  sem_init(&pause->go, 0, 0);
  sem_init(&pause->back, 0, 0);
  int failed = start_thread(pause);
  if (failed != 0) {
    sem_destroy(&pause->go);
    sem_destroy(&pause->back);
    free(pause);
    return error_set(error, STATUS_SYSTEM, "a thread cannot be started: %s", strerror(failed));
  }
  *out = pause;
  return STATUS_OK;
}

void cpu_pause_destroy(struct cpu_pause *pause) {
  if (pause == NULL) {
    return;
  }
  pause->work = NULL;
  sem_post(&pause->go);
  pthread_join(pause->thread, NULL);
  sem_destroy(&pause->go);
  sem_destroy(&pause->back);
  free(pause);
}

void cpu_pause_begin(struct cpu_pause *pause, cpu_work work, void *context) {
  pause->work = work;
  pause->context = context;
  pause->abandoned = pause->ended = false;
}

bool cpu_pause_go_on(struct cpu_pause *pause, uint64_t budget_ns, enum status *status, struct error *error) {
  pause->until_ns = clock_ns() + budget_ns;
  sem_post(&pause->go);
  wait_for(&pause->back);
  if (!pause->ended) {
    return false;
  }
  pause->work = NULL;
  *status = pause->status;
  if (*status != STATUS_OK) {
    *error = pause->error;
  }
  return true;
}

void cpu_pause_abandon(struct cpu_pause *pause) {
  pause->abandoned = true;
}

uint64_t cpu_pause_longest_ns(const struct cpu_pause *pause) {
  return pause->longest_ns;
}

enum status cpu_pause_here(struct cpu_pause *pause, uint64_t predicted_ns, struct error *error) {
  if (pause == NULL) {
    return STATUS_OK;
  }
  if (predicted_ns > pause->longest_ns) {
    pause->longest_ns = predicted_ns;
  }
  if (clock_ns() >= pause->until_ns) {
    sem_post(&pause->back);
    wait_for(&pause->go);
  }
  return pause->abandoned ? error_set(error, STATUS_CANCELLED, "the product is not wanted any more") : STATUS_OK;
}
