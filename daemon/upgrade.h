/* `gemmd --upgrade`: asks the gemmd that serves the configured socket to execute its program again in place. */
#ifndef DAEMON_UPGRADE_H
#define DAEMON_UPGRADE_H

#include "config.h"

/* Returns when the successor answers; the exit status. */
int upgrade_run(const struct config *config);

#endif
