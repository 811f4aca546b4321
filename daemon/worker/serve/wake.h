/* Writes the wakeup eventfds of clients that sleep. The open file is shared with the client, who can make it blocking
 * and fill its counter, so that a write would wait for as long as the client likes: a timer interrupts it. */
#pragma once

#include "../../../proto/status.h"

#include <stdbool.h>
#include <time.h>

struct wake {
  timer_t timer; /* signals the thread that opened it */
};

/* On the thread that will write. SYSTEM. */
MUST_CHECK enum status wake_open(struct wake *wake, struct error *error);
void wake_close(struct wake *wake);
/* False where the write had to be interrupted. */
bool wake_write(struct wake *wake, int fd);
