/* The doorbells of all sessions at one device, listened to while no worker does. */
#pragma once

#include "../../../proto/status.h"

#include <uv.h>

struct doorbells;

/* `rung` is called when one was written to, and once for each that had been when it was added. */
MUST_CHECK enum status doorbells_open(uv_loop_t *loop, void (*rung)(void *user), void *user, struct doorbells **out,
                                      struct error *error);
/* `fd` stays the caller's, which takes it out before closing it. */
MUST_CHECK enum status doorbells_add(struct doorbells *doorbells, int fd, struct error *error);
/* One that is not in it: nothing. NULL: nothing. */
void doorbells_remove(struct doorbells *doorbells, int fd);
/* It frees itself when the loop has let go of it. NULL: nothing. */
void doorbells_close(struct doorbells *doorbells);
