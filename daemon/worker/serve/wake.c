#include "wake.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PATIENCE_NS = 10000000 };

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid /* glibc has the field but not its name */
#endif

static void interrupt(int number) {
  (void)number; /* being delivered is all it is for: write(2) returns EINTR */
}

enum status wake_open(struct wake *wake, struct error *error) {
  struct sigaction action = {.sa_handler = interrupt}; /* no SA_RESTART */
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGRTMIN);
  struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN};
  event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
  if (sigaction(SIGRTMIN, &action, NULL) != 0 || pthread_sigmask(SIG_UNBLOCK, &signals, NULL) != 0 ||
      timer_create(CLOCK_MONOTONIC, &event, &wake->timer) != 0)
    return error_set(error, STATUS_SYSTEM, "a timer for wake-ups: %s", strerror(errno));
  return STATUS_OK;
}

void wake_close(struct wake *wake) {
  timer_delete(wake->timer);
}

bool wake_write(struct wake *wake, int fd) {
  /* Again and again, so that none is lost that comes just before write(2) begins to wait. */
  const struct itimerspec armed = {.it_value.tv_nsec = PATIENCE_NS, .it_interval.tv_nsec = PATIENCE_NS};
  const struct itimerspec disarmed = {.it_value.tv_nsec = 0};
  timer_settime(wake->timer, 0, &armed, NULL);
  uint64_t one = 1;
  bool interrupted = write(fd, &one, sizeof one) < 0 && errno == EINTR; /* a full counter wakes just as well */
  timer_settime(wake->timer, 0, &disarmed, NULL);
  return !interrupted;
}
