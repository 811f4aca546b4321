#include "heap.h"
#include "../../proto/gemm.h"

#include <stdlib.h>
#include <string.h>

static bool list_reserve(struct heap_list *list, size_t count) {
  if (count <= list->capacity)
    return true;
  size_t capacity = list->capacity ? list->capacity : 16;
  while (capacity < count)
    capacity *= 2;
  struct heap_span *spans = realloc(list->spans, capacity * sizeof *spans);
  if (!spans)
    return false;
  *list = (struct heap_list){.spans = spans, .count = list->count, .capacity = capacity};
  return true;
}

/* Index of the first span that starts at `offset` or behind it. */
static size_t list_find(const struct heap_list *list, uint64_t offset) {
  size_t low = 0, high = list->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (list->spans[middle].offset < offset)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* The list has been reserved. */
static void list_insert(struct heap_list *list, size_t index, struct heap_span span) {
  memmove(&list->spans[index + 1], &list->spans[index], (list->count - index) * sizeof span);
  list->spans[index] = span;
  list->count++;
}

static void list_remove(struct heap_list *list, size_t index) {
  list->count--;
  memmove(&list->spans[index], &list->spans[index + 1], (list->count - index) * sizeof list->spans[0]);
}

bool heap_init(struct heap *heap, uint64_t begin, uint64_t end) {
  memset(heap, 0, sizeof *heap);
  begin = gemm_round_up(begin, HEAP_ALIGN);
  end -= end % HEAP_ALIGN;
  if (!list_reserve(&heap->free, 1))
    return false;
  if (begin < end)
    list_insert(&heap->free, 0, (struct heap_span){.offset = begin, .bytes = end - begin});
  return true;
}

void heap_release(struct heap *heap) {
  free(heap->free.spans);
  free(heap->used.spans);
  memset(heap, 0, sizeof *heap);
}

bool heap_alloc(struct heap *heap, uint64_t bytes, uint64_t *offset) {
  uint64_t need = gemm_round_up(bytes ? bytes : 1, HEAP_ALIGN);
  size_t index = 0;
  while (index < heap->free.count && heap->free.spans[index].bytes < need)
    index++;
  /* Both lists grow here, so that heap_free never has to. */
  if (index == heap->free.count || !list_reserve(&heap->used, heap->used.count + 1) ||
      !list_reserve(&heap->free, heap->used.count + 2))
    return false;
  struct heap_span *hole = &heap->free.spans[index];
  *offset = hole->offset;
  list_insert(&heap->used, list_find(&heap->used, *offset), (struct heap_span){.offset = *offset, .bytes = need});
  hole->offset += need;
  hole->bytes -= need;
  if (hole->bytes == 0)
    list_remove(&heap->free, index);
  return true;
}

bool heap_free(struct heap *heap, uint64_t offset) {
  size_t index = list_find(&heap->used, offset);
  if (index == heap->used.count || heap->used.spans[index].offset != offset)
    return false;
  struct heap_span span = heap->used.spans[index];
  list_remove(&heap->used, index);

  struct heap_list *holes = &heap->free;
  size_t next = list_find(holes, offset);
  bool joins_next = next < holes->count && span.offset + span.bytes == holes->spans[next].offset;
  bool joins_previous = next > 0 && holes->spans[next - 1].offset + holes->spans[next - 1].bytes == span.offset;
  if (joins_next) {
    span.bytes += holes->spans[next].bytes;
    list_remove(holes, next);
  }
  if (joins_previous)
    holes->spans[next - 1].bytes += span.bytes;
  else
    list_insert(holes, next, span);
  return true;
}

uint64_t heap_largest(const struct heap *heap) {
  uint64_t largest = 0;
  for (size_t i = 0; i < heap->free.count; i++)
    largest = heap->free.spans[i].bytes > largest ? heap->free.spans[i].bytes : largest;
  return largest;
}
