#include "nap.h"

#include <time.h>

void nap_shortly(void) {
  nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}
