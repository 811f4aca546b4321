/* Work with pauses: on a thread of its own, which runs only while its owner waits for it. So a product that takes long
 * is computed a turn at a time, with whatever loops it has, and others are computed between. */
#pragma once

#include "../../../proto/status.h"

#include <stdbool.h>
#include <stdint.h>

struct cpu_pause;

typedef enum status (*cpu_work)(void *context, struct error *error);

/* Starts the thread. NOMEM, SYSTEM. */
MUST_CHECK enum status cpu_pause_create(struct cpu_pause **out, struct error *error);
/* Not while work is under way. NULL is fine. */
void cpu_pause_destroy(struct cpu_pause *pause);

/* Gives the thread something to do; nothing runs before the first turn. */
void cpu_pause_begin(struct cpu_pause *pause, cpu_work work, void *context);
/* Lets it work until it pauses, which it does when it can after `budget_ns`. True: it has ended, with *status and,
 * where that is not OK, *error; the thread is free for other work. */
bool cpu_pause_go_on(struct cpu_pause *pause, uint64_t budget_ns, enum status *status, struct error *error);
/* The work is to end as soon as it can: in its next turn. */
void cpu_pause_abandon(struct cpu_pause *pause);

/* By the work, behind a piece of it that was predicted to take so long: returns when it is its turn. CANCELLED: it is
 * to end. OK at once where `pause` is NULL. */
MUST_CHECK enum status cpu_pause_here(struct cpu_pause *pause, uint64_t predicted_ns, struct error *error);
/* The longest of these so far. */
uint64_t cpu_pause_longest_ns(const struct cpu_pause *pause);
