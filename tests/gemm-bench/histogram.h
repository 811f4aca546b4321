/* Counts of durations in buckets that grow with the value: exact below 256 ns, above that 128 buckets to every power of
 * two, so that a value read back is off by at most 0.4 %. No pointers inside: it may lie in shared memory. One writer.
 */
#pragma once

#include <stdint.h>

#define HISTOGRAM_STEPS 128u /* buckets to a power of two */
#define HISTOGRAM_BUCKETS ((64u - 8u) * HISTOGRAM_STEPS + 2u * HISTOGRAM_STEPS)

struct histogram {
  uint64_t count, total, most; /* total: sum of all values */
  uint64_t buckets[HISTOGRAM_BUCKETS];
};

/* All zeros is an empty histogram. */
void histogram_add(struct histogram *histogram, uint64_t ns);
void histogram_merge(struct histogram *into, const struct histogram *from);
/* The value below or at which the part `quantile` (0..1) of all values lies; 0 for an empty histogram. */
uint64_t histogram_at(const struct histogram *histogram, double quantile);
/* The middle of a bucket. */
uint64_t histogram_value(unsigned bucket);
double histogram_mean(const struct histogram *histogram);
