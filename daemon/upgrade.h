/* `gemmd --upgrade`: asks the gemmd that serves the configured socket to execute its program again in place. */
#pragma once

#include "config.h"

/* Returns when the successor answers; the exit status. */
int upgrade_run(const struct config *config);
