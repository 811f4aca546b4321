/* Starts gemmd itself once more as a worker or a loader, with a socket to talk over as its descriptor 3. */
#pragma once

#include "../../../proto/status.h"
#include "../../config.h"

#include <uv.h>

/* A process. Its memory is its own: it frees itself when the process has been reaped and the loop has let go of it. */
struct child;

/* The process is dead and reaped; `signal` 0: it ended by itself. The child must not be used any more. */
typedef void (*child_exited)(void *user, int64_t exit_status, int signal);

/* `program` is what is executed; for gemmd /proc/self/exe, so that a child is of the same build as its parent although
 * the file may have been replaced. `mode` is what comes before the options: "--worker", "2"; ends with NULL. The child
 * gets every option as `--name value`, with those of `config`. *socket is this side's end of a SEQPACKET pair,
 * non-blocking, the caller's. SYSTEM where the program cannot be executed, NOMEM; then *out is not set and `exited` is
 * not called. */
MUST_CHECK enum status child_start(uv_loop_t *loop, const char *program, const char *const *mode,
                                   const struct config *config, child_exited exited, void *user, struct child **out,
                                   int *socket, struct error *error);
/* SIGKILL. NULL: nothing. */
void child_kill(struct child *child);
int child_pid(const struct child *child);
