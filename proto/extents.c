#include "extents.h"

#include "gemm.h"

#include <stdlib.h>
#include <string.h>

void extents_init(struct extents *extents, uint64_t bytes) {
  *extents = (struct extents){.bytes = bytes};
}

void extents_free(struct extents *extents) {
  free(extents->taken);
  *extents = (struct extents){.bytes = 0};
}

/* Whether `bytes` fit between the aligned end of the range before and `end`. */
static bool gap_fits(uint64_t begin, uint64_t end, uint64_t bytes) {
  return begin <= end && bytes <= end - begin;
}

/* Index of the first range that begins at `offset` or behind it. */
static size_t find(const struct extents *extents, uint64_t offset) {
  size_t low = 0, high = extents->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (extents->taken[middle].offset < offset)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static enum status insert(struct extents *extents, size_t at, uint64_t offset, uint64_t bytes, struct error *error) {
  if (extents->count == extents->capacity) {
    size_t capacity = extents->capacity > 0 ? 2 * extents->capacity : 16;
    struct extent *taken = realloc(extents->taken, capacity * sizeof *taken);
    if (taken == NULL)
      return error_set(error, STATUS_NOMEM, "no memory for the list of ranges that are taken");
    extents->taken = taken;
    extents->capacity = capacity;
  }
  memmove(&extents->taken[at + 1], &extents->taken[at], (extents->count - at) * sizeof *extents->taken);
  extents->taken[at] = (struct extent){.offset = offset, .bytes = bytes};
  extents->count++;
  extents->used += bytes;
  return STATUS_OK;
}

enum status extents_take(struct extents *extents, uint64_t from, uint64_t bytes, uint64_t align, uint64_t *offset,
                         struct error *error) {
  if (bytes == 0 || align == 0 || (align & (align - 1)) != 0)
    return error_set(error, STATUS_INVALID, "a range of %llu bytes aligned to %llu cannot be taken",
                     (unsigned long long)bytes, (unsigned long long)align);
  uint64_t begin = gemm_round_up(from, align);
  size_t at = 0;
  for (; at < extents->count && !gap_fits(begin, extents->taken[at].offset, bytes); at++) {
    uint64_t behind = gemm_round_up(extents->taken[at].offset + extents->taken[at].bytes, align);
    begin = behind > begin ? behind : begin;
  }
  if (at == extents->count && !gap_fits(begin, extents->bytes, bytes))
    return error_set(error, STATUS_NOT_FOUND, "no gap of %llu bytes in the slab", (unsigned long long)bytes);
  *offset = begin;
  return insert(extents, at, begin, bytes, error);
}

enum status extents_take_at(struct extents *extents, uint64_t offset, uint64_t bytes, struct error *error) {
  size_t at = find(extents, offset);
  uint64_t begin = at == 0 ? 0 : extents->taken[at - 1].offset + extents->taken[at - 1].bytes;
  uint64_t end = at == extents->count ? extents->bytes : extents->taken[at].offset;
  if (bytes == 0 || offset < begin || !gap_fits(offset, end, bytes))
    return error_set(error, STATUS_NOT_FOUND, "%llu bytes at %llu of the slab are not free", (unsigned long long)bytes,
                     (unsigned long long)offset);
  return insert(extents, at, offset, bytes, error);
}

bool extents_give(struct extents *extents, uint64_t offset) {
  size_t at = find(extents, offset);
  if (at == extents->count || extents->taken[at].offset != offset)
    return false;
  extents->used -= extents->taken[at].bytes;
  extents->count--;
  memmove(&extents->taken[at], &extents->taken[at + 1], (extents->count - at) * sizeof *extents->taken);
  return true;
}

uint64_t extents_largest(const struct extents *extents, uint64_t from) {
  uint64_t begin = from, largest = 0;
  for (size_t at = 0; at <= extents->count; at++) {
    uint64_t end = at < extents->count ? extents->taken[at].offset : extents->bytes;
    if (end > begin && end - begin > largest)
      largest = end - begin;
    if (at < extents->count && extents->taken[at].offset + extents->taken[at].bytes > begin)
      begin = extents->taken[at].offset + extents->taken[at].bytes;
  }
  return largest;
}
