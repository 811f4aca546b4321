#include "descriptors.h"

#include <fcntl.h>
#include <stdint.h>
#include <sys/resource.h>
#include <unistd.h>

/* For a worker's successor (3), a loader (3), the rounding up of a session's own (5 and one a device), and an admin's
 * session as large. */
enum { KEPT_BACK = 64 };

void descriptors_raise_limit(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max)
    return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

/* The kernel gives out the lowest number that is free, so that it tells how many are taken, near enough. */
bool descriptors_left(bool admin) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return true;
  int lowest = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (lowest < 0)
    return false;
  close(lowest);
  return (uint64_t)lowest + (admin ? KEPT_BACK / 2 : KEPT_BACK) < limit.rlim_cur;
}
