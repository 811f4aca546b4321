/* The supervisor: owns the socket, the sessions, the arenas, the catalog and the children. Computes nothing. */
#pragma once

#include "../../proto/status.h"
#include "../config.h"

/* Whether the options make sense where they are more than words: groups, users, kernels set by hand. INVALID. */
MUST_CHECK enum status supervisor_check(const struct config *config, struct error *error);

/* Runs until SIGTERM or SIGINT; returns the exit status. `children` is the program to start workers and loaders from,
 * `program` the one that takes this one's place on an upgrade, with the same `arguments` (NULL: there is no upgrade).
 * `embedded` >= 0: serve that connected socket instead of listening, and end with it. */
int supervisor_run(const struct config *config, const char *program, const char *children, char *const *arguments,
                   int embedded);
