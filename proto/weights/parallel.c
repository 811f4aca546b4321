#include "parallel.h"

#include <pthread.h>
#include <stdatomic.h>

struct loop {
  size_t count;
  void (*work)(void *context, size_t index, unsigned thread);
  void *context;
  _Atomic size_t next;
  _Atomic unsigned threads;
};

static void *loop_run(void *argument) {
  struct loop *loop = argument;
  unsigned thread = atomic_fetch_add(&loop->threads, 1);
  for (size_t index; (index = atomic_fetch_add(&loop->next, 1)) < loop->count;)
    loop->work(loop->context, index, thread);
  return NULL;
}

void parallel_run(unsigned threads, size_t count, void (*work)(void *context, size_t index, unsigned thread),
                  void *context) {
  struct loop loop = {.count = count, .work = work, .context = context};
  pthread_t others[PARALLEL_THREADS_MOST];
  unsigned started = 0, most = threads < PARALLEL_THREADS_MOST ? threads : PARALLEL_THREADS_MOST;
  while (started + 1 < most && started + 1 < count && pthread_create(&others[started], NULL, loop_run, &loop) == 0)
    started++;
  loop_run(&loop);
  while (started > 0)
    pthread_join(others[--started], NULL);
}
