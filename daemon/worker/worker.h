/* The worker: owns one device and serves the rings of all sessions on it. */
#ifndef WORKER_H
#define WORKER_H

#include "../config.h"

/* Serves the supervisor's socket `control` until it closes; returns the exit status: 0 at an orderly end, 3 where no
 * backend could be opened, 4 where the device was lost. `words`: the command line, of which the one of worker_prove is
 * made. */
int worker_run(const struct config *config, int device, int control, char *const *words);
/* Proves kernels for the worker that started it, by prove.h, on standard input and output. */
int worker_prove(const struct config *config, int device);

#endif
