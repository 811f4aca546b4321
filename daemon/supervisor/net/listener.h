/* The socket that clients connect to: systemd's, where it passes one, else one of our own. */
#pragma once

#include "../../../proto/status.h"

#include <stdbool.h>
#include <uv.h>

struct inherited;
struct supervisor;

/* What the socket and its lock are called where they are inherited from another gemmd. systemd's socket goes by any
 * other name. */
#define LISTENER_SOCKET_NAME "gemmd-own-socket"
#define LISTENER_LOCK_NAME "gemmd-own-lock"

struct listener {
  uv_poll_t poll;
  bool open, polled;
  int fd, lock;   /* owned; -1: none */
  int spare;      /* owned: given up for a moment to turn a client away when descriptors run out */
  char path[256]; /* to be unlinked; "" for systemd's socket */
};

void listener_init(struct listener *listener);
/* INVALID where no socket can have this path. */
MUST_CHECK enum status listener_check(const char *path, struct error *error);
/* Takes an inherited socket, or makes one. Takes the lock beside that: who has it may replace what a dead daemon left
 * there. EXISTS where another daemon has it for a second. */
MUST_CHECK enum status listener_open(struct supervisor *supervisor, struct inherited *inherited, struct error *error);
/* Accepts nobody from here on, and keeps the socket: who connects waits for whoever accepts next. */
void listener_pause(struct listener *listener);
void listener_close(struct listener *listener);
