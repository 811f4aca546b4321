#include "throttle.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/time.h>
#include <time.h>

enum { TICK_US = 10000 }; /* of computing between two pauses, about: the system's clock is coarser */

static int64_t share;     /* thousandths */
static int64_t paused_ns; /* of this process's computing, when the last pause began */

static int64_t computed_ns(void) {
  struct timespec spent;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
  return (int64_t)spent.tv_sec * 1000000000 + spent.tv_nsec;
}

/* Whoever has computed long enough waits, in the middle of whatever it does. */
static void wait_a_while(int signal) {
  int before = errno;
  int64_t now = computed_ns(), pause_ns = (now - paused_ns) * (1000 - share) / share;
  paused_ns = now;
  (void)poll(NULL, 0, (int)(pause_ns / 1000000 + 1));
  errno = before;
}

static void set_timer(int us) {
  const struct itimerval timer = {.it_interval = {.tv_usec = us}, .it_value = {.tv_usec = us}};
  (void)setitimer(ITIMER_PROF, &timer, NULL);
}

void throttle_begin(int thousandths) {
  struct sigaction action = {.sa_handler = wait_a_while, .sa_flags = SA_RESTART};
  if (thousandths >= 1000)
    return;
  share = thousandths;
  paused_ns = computed_ns();
  sigemptyset(&action.sa_mask);
  if (sigaction(SIGPROF, &action, NULL) == 0)
    set_timer(TICK_US);
}

void throttle_end(void) {
  set_timer(0);
  (void)signal(SIGPROF, SIG_IGN);
}
