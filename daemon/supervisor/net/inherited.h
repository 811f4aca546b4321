/* Descriptors that this process was started with, by name: from systemd (its socket, and what gemmd parked in the
 * descriptor store), or from the gemmd that this one replaces (sd_listen_fds(3)'s protocol in both cases). */
#pragma once

#include "../../../proto/status.h"

#include <stddef.h>

enum { INHERITED_NAME_BYTES = 64 };

struct inherited_fd {
  int fd; /* owned; -1: taken */
  char name[INHERITED_NAME_BYTES];
};

struct inherited {
  struct inherited_fd *list; /* owned */
  size_t count;
};

/* What LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES say; the variables are gone afterwards, and the descriptors are not
 * for children. None is no failure. */
MUST_CHECK enum status inherited_read(struct inherited *inherited, struct error *error);
/* Closes what was not taken. */
void inherited_free(struct inherited *inherited);
/* Takes the descriptor out; -1 where there is none of that name. */
int inherited_take(struct inherited *inherited, const char *name);

/* What the program that is executed next is to find. The descriptors take the numbers from 3 on, whatever had these,
 * and leave those that they had: nothing but exec may follow. The numbers in `list` change. */
MUST_CHECK enum status inherited_leave(struct inherited_fd *list, size_t count, struct error *error);
