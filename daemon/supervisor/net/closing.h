/* Closing descriptors that clients sent. On a file system in user space the client decides when a close returns: in the
 * loop that would hold up everybody. So it happens on threads of their own. */
#pragma once

#include <stdbool.h>

/* Returns at once. `payer` is an atomic_uint, or NULL: it counts closes that have not returned, and stays until they
 * have. */
void closing_start(int fd, void *payer);
/* The same for memory of gemmd's own that nobody else may have any more: its pages are freed meanwhile, of gigabytes
 * for seconds on a busy machine. Counts for nobody. */
void closing_memory(int fd);
/* Before a child is started: waits until none of these descriptors is open in this process any more, whether its close
 * has returned or not. A child that inherited one would have to close it before it executes its program. */
void closing_settle(void);
/* Closes that have not returned, all of them. */
unsigned closing_pending(void);
/* Before exec: gives closes that nothing holds up the time that they take. False where some have not returned: their
 * threads hold up exec, and keep this process's descriptors beyond its end. */
bool closing_finish(void);
/* Then closes every descriptor from `first` on. Nothing but the end of the process may follow. */
void closing_abandon(int first);
