/* The worker: owns one device and serves the rings of all sessions on it. */
#pragma once

#include "../../proto/status.h"
#include "../config.h"

#include <stdbool.h>

/* Serves the supervisor's socket `control` until it closes; `standby`: as soon as it says something, another process
 * serves until then. Returns the exit status: 0 at an orderly end, 3 where no
 * backend could be opened, 4 where the device was lost. `words`: the command line, of which the one of worker_prove is
 * made. */
int worker_run(const struct config *config, int device, int control, bool standby, char *const *words);
/* Whether a worker would find its backend with these options, and on the CPU, where that costs nothing, could open
 * it. */
MUST_CHECK enum status worker_check(const struct config *config, struct error *error);
/* Proves kernels for the worker that started it, by prove.h, on standard input and output. */
int worker_prove(const struct config *config, int device);
