#include "gaps.h"

#include <stdlib.h>

enum { ARRIVALS = 1000000 };

static int compare_begins(const void *a, const void *b) {
  const struct gap *first = a, *second = b;
  return (first->begin_ns > second->begin_ns) - (first->begin_ns < second->begin_ns);
}

size_t gaps_merge(struct gap *gaps, size_t count) {
  size_t merged = 0;
  if (count > 0)
    qsort(gaps, count, sizeof *gaps, compare_begins);
  for (size_t i = 0; i < count; i++) {
    if (merged == 0 || gaps[i].begin_ns > gaps[merged - 1].end_ns)
      gaps[merged++] = gaps[i];
    else if (gaps[i].end_ns > gaps[merged - 1].end_ns)
      gaps[merged - 1].end_ns = gaps[i].end_ns;
  }
  return merged;
}

/* When work ends that arrives at `at_ns`; `gap` is the first that has not ended by then. */
static uint64_t end_of_work(const struct gap *gap, const struct gap *end, uint64_t at_ns, uint64_t work_ns) {
  for (; gap < end && gap->begin_ns < at_ns + work_ns; gap++) {
    uint64_t done_ns = gap->begin_ns > at_ns ? gap->begin_ns - at_ns : 0;
    work_ns -= done_ns;
    at_ns = gap->end_ns;
  }
  return at_ns + work_ns;
}

void gaps_tail(const struct gap *gaps, size_t count, uint64_t run_ns, uint64_t work_ns, struct histogram *out) {
  const struct gap *gap = gaps, *end = gaps + count;
  for (uint64_t i = 0; i < ARRIVALS; i++) {
    uint64_t at_ns = (uint64_t)((double)run_ns * ((double)i + 0.5) / ARRIVALS);
    while (gap < end && gap->end_ns <= at_ns)
      gap++;
    histogram_add(out, end_of_work(gap, end, at_ns, work_ns) - at_ns);
  }
}

uint64_t gaps_total(const struct gap *gaps, size_t count) {
  uint64_t total = 0;
  for (size_t i = 0; i < count; i++)
    total += gaps[i].end_ns - gaps[i].begin_ns;
  return total;
}
