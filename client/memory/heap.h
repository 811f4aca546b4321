/* The arena's allocator: offsets behind what the two sides have in common there, in multiples of HEAP_ALIGN; private.
 */
#pragma once

#include "../../proto/extents.h"

#define HEAP_ALIGN 256u

struct heap {
  struct extents extents;
  uint64_t begin;
};

/* Offsets begin .. end - 1; both are rounded inwards to HEAP_ALIGN. */
void heap_init(struct heap *heap, uint64_t begin, uint64_t end);
void heap_release(struct heap *heap);
/* False where no gap holds `bytes` (0 counts as 1), or for lack of memory. */
bool heap_alloc(struct heap *heap, uint64_t bytes, uint64_t *offset);
/* False, with nothing changed, for an offset that heap_alloc did not give or that was freed before. */
bool heap_free(struct heap *heap, uint64_t offset);
/* Bytes of the largest gap. */
uint64_t heap_largest(const struct heap *heap);
