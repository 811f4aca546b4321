/* The worker: owns one device and serves the rings of all sessions on it. */
#ifndef WORKER_H
#define WORKER_H

#include "../config.h"

/* Serves the supervisor's socket `control` until it closes; returns the exit status: 0 at an orderly end, 3 where no
 * backend could be opened, 4 where the device was lost. */
int worker_run(const struct config *config, int device, int control);

#endif
