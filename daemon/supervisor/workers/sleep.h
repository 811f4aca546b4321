/* Workers that are asleep: what is submitted to one starts it. */
#pragma once

#include <stdint.h>

struct arena;
struct supervisor;
struct worker;

/* The worker has no process from now on: what sessions submit is heard. */
void sleep_begun(struct supervisor *supervisor, struct worker *worker);
/* A session has got its arena while the worker sleeps: what it submits there is heard. Nothing where it does not. */
void sleep_listen(struct supervisor *supervisor, const struct arena *arena, uint32_t device);
