#include "clock.h"
#include "../../proto/clock.h"

#include <errno.h>
#include <time.h>

#define NS_PER_S INT64_C(1000000000)

int64_t clock_now(void) {
  return (int64_t)clock_ns();
}

int64_t clock_deadline(int64_t ns) {
  int64_t deadline;
  if (ns < 0 || __builtin_add_overflow(clock_now(), ns, &deadline))
    return CLOCK_NEVER;
  return deadline;
}

int clock_poll(struct pollfd *fds, nfds_t count, int64_t deadline) {
  for (;;) {
    struct timespec left;
    if (deadline != CLOCK_NEVER) {
      int64_t ns = deadline - clock_now();
      ns = ns < 0 ? 0 : ns;
      left = (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
    }
    int ready = ppoll(fds, count, deadline == CLOCK_NEVER ? NULL : &left, NULL);
    if (ready >= 0 || errno != EINTR)
      return ready;
  }
}
