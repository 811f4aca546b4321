/* Which ranges of a memory are taken, a slab or an arena; the books lie outside of it. First fit, because weights and
 * tensors come in few sizes, and a range that is given back is usually asked for again by one of the same shape. */
#pragma once

#include "status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct extent {
  uint64_t offset, bytes;
};

struct extents {
  uint64_t bytes;       /* of the memory */
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
/* Takes exactly that range. NOT_FOUND where it is not free or not inside. */
MUST_CHECK enum status extents_take_at(struct extents *extents, uint64_t offset, uint64_t bytes, struct error *error);
/* Gives the range back that begins at `offset`; false where none does. */
bool extents_give(struct extents *extents, uint64_t offset);
/* Bytes of the largest gap, from `from` on. */
uint64_t extents_largest(const struct extents *extents, uint64_t from);
