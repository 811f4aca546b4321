/* One thread of another process, stopped while the others go on: what a device that hangs does to whoever waits for it.
 */
#ifndef TESTS_SUPPORT_HOLD_H
#define TESTS_SUPPORT_HOLD_H

#include <stdbool.h>
#include <sys/types.h>

/* The thread of `process` whose name begins so; 0. */
pid_t hold_find(pid_t process, const char *name);
/* Starts a process that holds the thread until that is killed, and exits with 0 then. *held, in memory that both see,
 * is set once it stands still. */
pid_t hold_thread(pid_t thread, _Atomic bool *held);

#endif
