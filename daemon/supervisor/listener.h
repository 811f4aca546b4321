/* The socket that clients connect to: systemd's, where it passes one, else one of our own. */
#ifndef SUPERVISOR_LISTENER_H
#define SUPERVISOR_LISTENER_H

#include "../../proto/status.h"

#include <stdbool.h>
#include <uv.h>

struct supervisor;

struct listener {
  uv_poll_t poll;
  bool open, polled;
  int fd, lock;   /* owned; -1: none */
  int spare;      /* owned: given up for a moment to turn a client away when descriptors run out */
  char path[256]; /* to be unlinked; "" for systemd's socket */
};

void listener_init(struct listener *listener);
/* Takes the lock beside the socket: who has it may replace what a dead daemon left there. EXISTS where another
 * daemon has it. */
MUST_CHECK enum status listener_open(struct supervisor *supervisor, struct error *error);
void listener_close(struct listener *listener);

#endif
