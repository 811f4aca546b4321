/* What the memory and the arithmetic of this machine deliver to the backend's threads, measured without products. */
#pragma once

#include "../backend.h"
#include "micro/micro.h"
#include "pool.h"

/* By the thread that runs the pool. What `state_dir` keeps for the identity is taken, and what is measured kept there;
 * NULL: nothing is. A roof that cannot be measured is 0. */
void cpu_roof(struct cpu_pool *pool, const struct micro_ops *micro, const char *state_dir, const char *identity,
              struct backend_roof *out);
