/* The loader: reads one tensor of one file into canonical form, in a process of its own. */
#pragma once

#include "../config.h"

/* Serves one `load` request from the supervisor's socket `control`; returns the exit status. */
int loader_run(const struct config *config, int control);
