#include "pool.h"

#include "../../proto/clock.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
  SPINS = 1000,     /* about 15 us: longer than between two products of a busy engine, shorter than anybody notices */
  YIELD_EVERY = 32, /* of them: on few cores the client that waits for this product spins, too */
  YIELD_LONG_NS = 5000 /* somebody else had the core, and may want it again */
};

/* What a thread other than the caller watches, on a line of its own. */
struct turn {
  _Alignas(64) atomic_uint rounds; /* that it has a part in; goes up by one for each */
  atomic_int sleepers;             /* 1: it may sleep on `rounds` */
};

struct cpu_pool {
  int threads, started;
  pthread_t *handles; /* owned; threads - 1 */
  struct turn *turns; /* owned; [threads], the first is nobody's */
  struct cpu_cores cores;
  cpu_parallel parallel; /* NULL: threads of its own */
  void *parallel_context;
  bool stop;
  cpu_task task;
  void *context;
  int parts;                         /* of this round */
  _Alignas(64) atomic_uint left;     /* parts that have not ended, the caller's apart */
  atomic_bool caller_sleeps;         /* on `left` */
  _Alignas(64) atomic_uint meetings; /* goes up by one when all parts have met; what waits for it watches */
  _Alignas(64) atomic_uint arrived;  /* parts at the present meeting */
  atomic_int waiters;                /* that may sleep on `meetings` */
};

struct worker {
  struct cpu_pool *pool;
  int part;
};

/* False where spinning stands in somebody's way. Who sleeps in place of it also wakes up on a core that is free, where
 * the scheduler would leave two that spin on one core for a tenth of a second. */
static bool relax(int spin) {
  if (spin % YIELD_EVERY == YIELD_EVERY - 1) {
    uint64_t before_ns = clock_ns();
    sched_yield();
    return clock_ns() - before_ns < YIELD_LONG_NS;
  }
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
  return true;
}

/* True where the word changed meanwhile. */
static bool spin_while(const atomic_uint *word, unsigned value) {
  for (int i = 0; atomic_load_explicit(word, memory_order_acquire) == value; i++) {
    if (i == SPINS || !relax(i)) {
      return false;
    }
  }
  return true;
}

static void sleep_while(atomic_uint *word, unsigned value) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void wake(atomic_uint *word, int most) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, most, NULL, NULL, 0);
}

/* The sleeper announces itself before it looks at the word for the last time (the kernel does), the waker changes
 * the word before it looks for sleepers: one of them sees the other. */
static void wait_for_change(atomic_uint *word, unsigned seen, atomic_int *sleepers) {
  if (spin_while(word, seen)) {
    return;
  }
  atomic_fetch_add(sleepers, 1);
  while (atomic_load(word) == seen) {
    sleep_while(word, seen);
  }
  atomic_fetch_sub(sleepers, 1);
}

static void change(atomic_uint *word, atomic_int *sleepers) {
  atomic_fetch_add(word, 1);
  if (atomic_load(sleepers) > 0) {
    wake(word, INT_MAX);
  }
}

static void start_round(struct cpu_pool *pool, int parts) {
  for (int part = 1; part < parts; part++) {
    change(&pool->turns[part].rounds, &pool->turns[part].sleepers);
  }
}

static void end_part(struct cpu_pool *pool) {
  if (atomic_fetch_sub(&pool->left, 1) == 1 && atomic_load(&pool->caller_sleeps)) {
    wake(&pool->left, 1);
  }
}

static void wait_for_parts(struct cpu_pool *pool) {
  for (int i = 0; i < SPINS; i++) {
    if (atomic_load_explicit(&pool->left, memory_order_acquire) == 0) {
      return;
    }
    if (!relax(i)) {
      break;
    }
  }
  atomic_store(&pool->caller_sleeps, true);
  for (unsigned left = atomic_load(&pool->left); left != 0; left = atomic_load(&pool->left)) {
    sleep_while(&pool->left, left);
  }
  atomic_store(&pool->caller_sleeps, false);
}

static void *worker_run(void *argument) {
  struct worker worker = *(struct worker *)argument;
  struct cpu_pool *pool = worker.pool;
  free(argument);
  struct turn *turn = &pool->turns[worker.part];
  cpu_cores_pin(&pool->cores, worker.part);
  for (unsigned seen = 0;; seen++) {
    wait_for_change(&turn->rounds, seen, &turn->sleepers);
    if (pool->stop) {
      return NULL;
    }
    pool->task(pool->context, worker.part, pool->parts);
    end_part(pool);
  }
}

/* Signals are for the threads that the worker process made for them. */
static int start_thread(struct cpu_pool *pool, int part) {
  sigset_t all, before;
  struct worker *worker = malloc(sizeof(*worker));
  if (worker == NULL) {
    return -1;
  }
  *worker = (struct worker){.pool = pool, .part = part};
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failed = pthread_create(&pool->handles[part - 1], NULL, worker_run, worker);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (failed != 0) {
    free(worker);
    return -1;
  }
  pthread_setname_np(pool->handles[part - 1], "gemmd-cpu");
  return 0;
}

static enum status pool_make(int threads, struct cpu_pool **out, struct error *error) {
  struct cpu_pool *pool = aligned_alloc(64, (sizeof(*pool) + 63) / 64 * 64);
  pthread_t *handles = calloc((size_t)threads, sizeof(*handles));
  struct turn *turns = aligned_alloc(64, (size_t)threads * sizeof(*turns));
  if (pool == NULL || handles == NULL || turns == NULL) {
    free(pool);
    free(handles);
    free(turns);
    return error_set(error, STATUS_NOMEM, "no memory for %d threads", threads);
  }
  memset(pool, 0, sizeof(*pool));
  memset(turns, 0, (size_t)threads * sizeof(*turns));
  pool->threads = threads;
  pool->handles = handles;
  pool->turns = turns;
  *out = pool;
  return STATUS_OK;
}

enum status cpu_pool_lent(int threads, cpu_parallel parallel, void *context, struct cpu_pool **out,
                          struct error *error) {
  enum status status = pool_make(threads, out, error);
  if (status == STATUS_OK) {
    (*out)->parallel = parallel;
    (*out)->parallel_context = context;
  }
  return status;
}

enum status cpu_pool_create(int threads, const struct cpu_cores *cores, struct cpu_pool **out, struct error *error) {
  struct cpu_pool *pool = NULL;
  if (pool_make(threads, &pool, error) != STATUS_OK) {
    return error->status;
  }
  if (cores != NULL) {
    pool->cores = *cores;
  }
  for (int part = 1; part < threads; part++, pool->started++) {
    if (start_thread(pool, part) != 0) {
      enum status status = error_set(error, STATUS_SYSTEM, "thread %d of %d cannot be started", part + 1, threads);
      cpu_pool_destroy(pool);
      return status;
    }
  }
  *out = pool;
  return STATUS_OK;
}

void cpu_pool_destroy(struct cpu_pool *pool) {
  pool->stop = true;
  start_round(pool, pool->started + 1);
  for (int i = 0; i < pool->started; i++) {
    pthread_join(pool->handles[i], NULL);
  }
  free(pool->handles);
  free(pool->turns);
  free(pool);
}

int cpu_pool_threads(const struct cpu_pool *pool) {
  return pool->threads;
}

bool cpu_pool_is_lent(const struct cpu_pool *pool) {
  return pool->parallel != NULL;
}

void cpu_pool_run(struct cpu_pool *pool, int parts, cpu_task task, void *context) {
  static _Thread_local const struct cpu_pool *pinned; /* that this thread has its core of */
  if (pool->parallel != NULL) {
    pool->parts = parts;
    if (parts > 1) {
      pool->parallel(pool->parallel_context, parts, task, context);
    } else {
      task(context, 0, 1);
    }
    return;
  }
  if (pinned != pool) {
    cpu_cores_pin(&pool->cores, 0);
    pinned = pool;
  }
  pool->task = task;
  pool->context = context;
  pool->parts = parts;
  atomic_store(&pool->left, (unsigned)(parts - 1));
  start_round(pool, parts);
  task(context, 0, parts);
  wait_for_parts(pool);
}

void cpu_pool_meet(struct cpu_pool *pool) {
  unsigned seen = atomic_load(&pool->meetings);
  if (atomic_fetch_add(&pool->arrived, 1) + 1 == (unsigned)pool->parts) {
    atomic_store(&pool->arrived, 0);
    change(&pool->meetings, &pool->waiters);
  } else {
    wait_for_change(&pool->meetings, seen, &pool->waiters);
  }
}
