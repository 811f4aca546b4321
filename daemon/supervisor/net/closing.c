#include "closing.h"

#include "../../log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { STACK_BYTES = 65536, FINISH_MS = 1000, MEMORY_MOST = 32 << 20 /* bytes that are freed in no time */ };

struct closing {
  LIST_ENTRY(closing) link; /* in `unsettled` */
  int fd;
  atomic_uint *payer;
  bool counted; /* in `pending` */
  bool listed;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, closing) unsettled = LIST_HEAD_INITIALIZER(unsettled); /* under `lock` */
static atomic_uint pending;

/* Takes the place of descriptors that are being closed: where it stands, the client's file is out of the table. */
static int placeholder(void) {
  static int fd = -1;
  if (fd < 0)
    fd = open("/dev/null", O_PATH | O_CLOEXEC);
  return fd;
}

static bool is_settled(const struct closing *closing) {
  return (fcntl(closing->fd, F_GETFL) & O_PATH) != 0;
}

static void unlist(struct closing *closing) {
  if (closing->listed)
    LIST_REMOVE(closing, link);
  closing->listed = false;
}

/* dup3 closes what it replaces, and waits for that. The number is free for others once nobody looks for the
 * placeholder there. */
static void *close_one(void *user) {
  struct closing *closing = user;
  dup3(placeholder(), closing->fd, O_CLOEXEC);
  pthread_mutex_lock(&lock);
  unlist(closing);
  close(closing->fd);
  pthread_mutex_unlock(&lock);
  if (closing->counted)
    atomic_fetch_sub(&pending, 1);
  if (closing->payer != NULL)
    atomic_fetch_sub(closing->payer, 1); /* which may be gone now */
  free(closing);
  return NULL;
}

static int start_thread(struct closing *closing) {
  pthread_attr_t attributes;
  pthread_t thread;
  sigset_t all, before;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  sigfillset(&all); /* signals are the loop's */
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failure = pthread_create(&thread, &attributes, close_one, closing);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  return failure;
}

static int start(int fd, atomic_uint *payer, bool counted) {
  struct closing *closing = placeholder() >= 0 ? malloc(sizeof *closing) : NULL;
  if (closing == NULL)
    return errno;
  *closing = (struct closing){.fd = fd, .payer = payer, .counted = counted, .listed = true};
  pthread_mutex_lock(&lock);
  LIST_INSERT_HEAD(&unsettled, closing, link);
  int failure = start_thread(closing);
  if (failure != 0)
    unlist(closing);
  pthread_mutex_unlock(&lock);
  if (failure != 0)
    free(closing);
  return failure;
}

void closing_start(int fd, void *payer) {
  if (fcntl(fd, F_GET_SEALS) >= 0) { /* memory: there is nobody to wait for */
    close(fd);
    return;
  }
  atomic_fetch_add(&pending, 1);
  if (payer != NULL)
    atomic_fetch_add((atomic_uint *)payer, 1);
  int failure = start(fd, payer, true);
  if (failure != 0) /* kept open rather than closed here; it counts for good */
    log_error("a client's descriptor cannot be closed: %s", strerror(failure));
}

void closing_memory(int fd) {
  struct stat stat;
  bool large = fstat(fd, &stat) == 0 && stat.st_size > MEMORY_MOST;
  if (!large || start(fd, NULL, false) != 0)
    close(fd);
}

void closing_settle(void) {
  for (bool waiting = true; waiting;) {
    struct closing *closing, *next;
    waiting = false;
    pthread_mutex_lock(&lock);
    for (closing = LIST_FIRST(&unsettled); closing != NULL; closing = next) {
      next = LIST_NEXT(closing, link);
      if (is_settled(closing))
        unlist(closing);
      else
        waiting = true;
    }
    pthread_mutex_unlock(&lock);
    if (waiting)
      sched_yield();
  }
}

unsigned closing_pending(void) {
  return atomic_load(&pending);
}

bool closing_finish(void) {
  const struct timespec moment = {.tv_nsec = 1000000};
  for (int i = 0; i < FINISH_MS && closing_pending() > 0; i++)
    nanosleep(&moment, NULL);
  return closing_pending() == 0;
}

void closing_abandon(int first) {
  closing_settle();
  close_range((unsigned)first, ~0u, 0);
}
