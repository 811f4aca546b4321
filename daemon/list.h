/* Lists that grow. */
#pragma once

#include "../proto/status.h"

#include <stddef.h>

/* Makes room for one more item of `size` bytes behind `count` of them. `list` is the address of the pointer to the
 * first, which realloc may move; NULL with *capacity 0 at first. NOMEM says that there is none for `what`, and changes
 * nothing. */
MUST_CHECK enum status list_grow(void *list, size_t count, size_t *capacity, size_t size, const char *what,
                                 struct error *error);
