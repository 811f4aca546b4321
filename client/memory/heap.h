/* First-fit allocator over a range of offsets; private. The bookkeeping lies outside the range, where the other side
 * of the shared memory cannot reach it. */
#ifndef CLIENT_MEMORY_HEAP_H
#define CLIENT_MEMORY_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HEAP_ALIGN 256u

struct heap_span {
  uint64_t offset, bytes;
};

/* Spans in order of offset. Free spans never touch each other, so there is at most one more of them than of used. */
struct heap_list {
  struct heap_span *spans; /* owned */
  size_t count, capacity;
};

struct heap {
  struct heap_list free, used;
};

/* Offsets begin .. end - 1; both are rounded inwards to HEAP_ALIGN. False for lack of memory. */
bool heap_init(struct heap *heap, uint64_t begin, uint64_t end);
void heap_release(struct heap *heap);
/* False where no free span holds `bytes` (0 counts as 1), or for lack of memory. */
bool heap_alloc(struct heap *heap, uint64_t bytes, uint64_t *offset);
/* False, with nothing changed, for an offset that heap_alloc did not give or that was freed before. */
bool heap_free(struct heap *heap, uint64_t offset);
/* Bytes of the largest free span. */
uint64_t heap_largest(const struct heap *heap);

#endif
