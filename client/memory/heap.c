#include "heap.h"

#include "../../proto/gemm.h"

void heap_init(struct heap *heap, uint64_t begin, uint64_t end) {
  heap->begin = gemm_round_up(begin, HEAP_ALIGN);
  extents_init(&heap->extents, end - end % HEAP_ALIGN);
}

void heap_release(struct heap *heap) {
  extents_free(&heap->extents);
}

bool heap_alloc(struct heap *heap, uint64_t bytes, uint64_t *offset) {
  struct error error;
  uint64_t need = gemm_round_up(bytes > 0 ? bytes : 1, HEAP_ALIGN);
  return extents_take(&heap->extents, heap->begin, need, HEAP_ALIGN, offset, &error) == STATUS_OK;
}

bool heap_free(struct heap *heap, uint64_t offset) {
  return extents_give(&heap->extents, offset);
}

uint64_t heap_largest(const struct heap *heap) {
  return extents_largest(&heap->extents, heap->begin);
}
