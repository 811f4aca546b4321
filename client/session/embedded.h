#pragma once

#include "../../proto/status.h"

#include <sys/types.h>

/* Starts a daemon that serves one socket. `config`: path of its configuration, "" for none. The caller owns *socket
 * and must reap *daemon. */
MUST_CHECK enum status embedded_start(const char *config, int *socket, pid_t *daemon, struct error *error);
/* Waits for its end, which closing the socket brings about; kills it after a while. Returns its wait status; -1 where
 * somebody else has reaped it. */
int embedded_reap(pid_t daemon);
