/* A session's handles: generation << 16 | index, chosen by the supervisor, each standing for a weight. A handle that
 * was given back is refused even where its index stands for another weight by now. Pure; one thread. */
#pragma once

#include "../../../proto/limits.h"
#include "../../../proto/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { HANDLES_PAGE_ENTRIES = 256, HANDLES_PAGES = LIMIT_SESSION_WEIGHTS / HANDLES_PAGE_ENTRIES };

struct handles {
  struct handles_page *pages[HANDLES_PAGES]; /* owned; NULL until an index of the page is used */
};

void handles_init(struct handles *handles);
/* What the handles stand for stays the caller's. */
void handles_close(struct handles *handles);

/* EXISTS where the index stands for something already, NOMEM. `weight` is not NULL. */
MUST_CHECK enum status handles_add(struct handles *handles, uint32_t handle, void *weight, struct error *error);
/* What the handle stands for; NULL for a handle never given, or given back. */
void *handles_find(const struct handles *handles, uint32_t handle);
/* The handle stands for nothing from here on; returns what it stood for, or NULL. */
void *handles_remove(struct handles *handles, uint32_t handle);
/* Removes some handle and returns what it stood for; NULL where none is left. `*from` starts at 0 and keeps the
 * place between calls. */
void *handles_remove_next(struct handles *handles, uint32_t *from);
