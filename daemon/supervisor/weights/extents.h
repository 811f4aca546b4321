/* Which ranges of one slab are taken. Pure: no device, no system calls. First fit, because weights come in few sizes
 * and a range that is given back is usually asked for again by a weight of the same shape. */
#ifndef SUPERVISOR_WEIGHTS_EXTENTS_H
#define SUPERVISOR_WEIGHTS_EXTENTS_H

#include "../../../proto/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct extent {
  uint64_t offset, bytes;
};

struct extents {
  uint64_t bytes;       /* of the slab */
  uint64_t used;        /* sum of the ranges */
  struct extent *taken; /* owned; by offset */
  size_t count, capacity;
};

void extents_init(struct extents *extents, uint64_t bytes);
void extents_free(struct extents *extents);

/* Takes `bytes` at a multiple of `align` (a power of two), not before `from`. NOT_FOUND where no gap is large enough.
 */
MUST_CHECK enum status extents_take(struct extents *extents, uint64_t from, uint64_t bytes, uint64_t align,
                                    uint64_t *offset, struct error *error);
/* Takes exactly that range. NOT_FOUND where it is not free or not in the slab. */
MUST_CHECK enum status extents_take_at(struct extents *extents, uint64_t offset, uint64_t bytes, struct error *error);
/* Gives the range back that begins at `offset`; false where none does. */
bool extents_give(struct extents *extents, uint64_t offset);

#endif
