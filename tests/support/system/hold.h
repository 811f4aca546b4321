/* Another process stopped, or one thread of it while the others go on: what a device that hangs does to whoever waits
 * for it. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* The thread of `process` whose name begins so; 0. */
pid_t hold_find(pid_t process, const char *name);
/* SIGSTOP to all of a process, and waits until each of its threads stands still: one that ran on might still answer. */
void hold_process(pid_t process);
/* Starts a process that holds the thread until that is killed, and exits with 0 then. *held, in memory that both see,
 * is set once it stands still. */
pid_t hold_thread(pid_t thread, _Atomic bool *held);
/* Starts a process before whose end nobody else, its parent neither, can wait for the end of `process`. *held, in
 * memory that both see, is set once that is so. */
pid_t hold_corpse(pid_t process, _Atomic bool *held);
