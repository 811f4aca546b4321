/* The process that runs kernels which no test has seen, for the tuner of the worker that started it: builds them,
 * compares them with the plain kernel over random weights, and says what came of each. It may die of any. */
#pragma once

#include "../../../kernels/backend.h"

#include <stdio.h>

/* Reads the name of a problem, thousandths of a core that compiling may take, and then variants, a line each; writes
 * for each, in order, "right", "wrong REASON" or "refused REASON"; or "cannot REASON" and no more. Returns the exit
 * status. `arena_bytes`: for x and y. */
int prove_run(const struct backend_ops *ops, const struct backend_config *config, uint64_t arena_bytes, FILE *in,
              FILE *out);
