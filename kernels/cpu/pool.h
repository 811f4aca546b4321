/* Threads that run one task at a time in equal parts. They spin for some microseconds after a task and then sleep,
 * so that a stream of products pays no wake-up and an idle process costs nothing. Those that a task has no part for
 * stay asleep: somebody else may need their cores. */
#pragma once

#include "../../proto/status.h"
#include "cores.h"

#include <stdbool.h>

struct cpu_pool;

/* Part `part` of `parts` of a task; parts run at the same time. */
typedef void (*cpu_task)(void *context, int part, int parts);

/* `threads` counts the caller of cpu_pool_run; each is pinned like the others when it calls first. `cores` is copied;
 * NULL: none. SYSTEM where a thread cannot be started. */
MUST_CHECK enum status cpu_pool_create(int threads, const struct cpu_cores *cores, struct cpu_pool **out,
                                       struct error *error);
/* Calls part(task, i, parts) for 0 <= i < parts, all at the same time, and returns when all have returned. */
typedef void (*cpu_parallel)(void *context, int parts, void (*part)(void *task, int part, int parts), void *task);

/* A pool without threads of its own: `parallel` has them, at least `threads` with the caller of cpu_pool_run. */
MUST_CHECK enum status cpu_pool_lent(int threads, cpu_parallel parallel, void *context, struct cpu_pool **out,
                                     struct error *error);
void cpu_pool_destroy(struct cpu_pool *pool);
int cpu_pool_threads(const struct cpu_pool *pool);
bool cpu_pool_is_lent(const struct cpu_pool *pool);

/* In `parts` parts, 1..threads. Returns when every part has. One caller at a time. */
void cpu_pool_run(struct cpu_pool *pool, int parts, cpu_task task, void *context);

/* Called by every part of a running task: returns when all have called it. What a part wrote before, all see after. */
void cpu_pool_meet(struct cpu_pool *pool);
