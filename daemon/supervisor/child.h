/* Starts gemmd itself once more as a worker or a loader, with a socket to talk over as its descriptor 3. */
#ifndef SUPERVISOR_CHILD_H
#define SUPERVISOR_CHILD_H

#include "../../proto/status.h"
#include "../config.h"

#include <uv.h>

/* `mode` is what comes before the options: "--worker", "2"; ends with NULL. The child gets every option as
 * `--name value`, with those of `config`. *socket is this side's end of a SEQPACKET pair, non-blocking, the caller's.
 * After a failure `process` is not in use. */
MUST_CHECK enum status child_start(uv_loop_t *loop, uv_process_t *process, const char *self, const char *const *mode,
                                   const struct config *config, uv_exit_cb exited, int *socket, struct error *error);

#endif
