/* The supervisor: owns the socket, the sessions, the arenas, the catalog and the children. Computes nothing. */
#ifndef SUPERVISOR_H
#define SUPERVISOR_H

#include "../config.h"

/* Runs until SIGTERM or SIGINT; returns the exit status. `children` is the program to start workers and loaders from,
 * `program` the one that takes this one's place on an upgrade, with the same `arguments` (NULL: there is no upgrade).
 * `embedded` >= 0: serve that connected socket instead of listening, and end with it. */
int supervisor_run(const struct config *config, const char *program, const char *children, char *const *arguments,
                   int embedded);

#endif
