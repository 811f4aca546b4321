#include "pairs.h"

#include <string.h>

uint64_t pairs_bytes(const struct pairs *pairs, int64_t rows) {
  return (uint64_t)(2 * rows * pairs->top + pairs->experts + 1) * sizeof(int32_t);
}

void pairs_place(struct pairs *pairs, int64_t rows, void *memory) {
  pairs->begins = memory;
  pairs->places = pairs->begins + pairs->experts + 1;
  pairs->sorted = pairs->places + rows * pairs->top;
}

void pairs_sort(struct pairs *pairs, const int32_t *ids, int64_t rows) {
  int64_t count = rows * pairs->top;
  const volatile int32_t *shared = ids;
  pairs->rows = rows;
  memset(pairs->begins, 0, (size_t)(pairs->experts + 1) * sizeof(*pairs->begins));
  for (int64_t i = 0; i < count; i++) {
    int32_t id = shared[i];
    pairs->places[i] = id >= 0 && id < pairs->experts ? id : -1;
    pairs->begins[pairs->places[i] + 1]++; /* those of expert e in e + 1; the first counts those that skip */
  }
  pairs->begins[0] = 0;
  for (int64_t e = 0; e < pairs->experts; e++) {
    pairs->begins[e + 1] += pairs->begins[e];
  }
  int32_t sorted = pairs->begins[pairs->experts];
  for (int64_t i = count - 1; i >= 0; i--) {
    int32_t id = pairs->places[i];
    if (id >= 0) { /* from the last on: what remains in begins[id + 1] is where the expert's begin */
      pairs->places[i] = --pairs->begins[id + 1];
      pairs->sorted[pairs->places[i]] = (int32_t)i;
    }
  }
  memmove(pairs->begins, pairs->begins + 1, (size_t)pairs->experts * sizeof(*pairs->begins));
  pairs->begins[pairs->experts] = sorted;
}
