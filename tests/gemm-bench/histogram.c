#include "histogram.h"

#include <math.h>

static unsigned bucket_of(uint64_t value) {
  if (value < 2 * HISTOGRAM_STEPS)
    return (unsigned)value;
  unsigned shift = 63u - (unsigned)__builtin_clzll(value) - 7u; /* leaves the highest 8 bits: 128..255 */
  return shift * HISTOGRAM_STEPS + (unsigned)(value >> shift);
}

uint64_t histogram_value(unsigned bucket) {
  if (bucket < 2 * HISTOGRAM_STEPS)
    return bucket;
  unsigned shift = bucket / HISTOGRAM_STEPS - 1;
  uint64_t low = (uint64_t)(bucket - shift * HISTOGRAM_STEPS) << shift;
  return low + ((uint64_t)1 << shift) / 2;
}

void histogram_add(struct histogram *histogram, uint64_t ns) {
  histogram->buckets[bucket_of(ns)]++;
  histogram->count++;
  histogram->total += ns;
  if (ns > histogram->most)
    histogram->most = ns;
}

void histogram_merge(struct histogram *into, const struct histogram *from) {
  for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
    into->buckets[i] += from->buckets[i];
  into->count += from->count;
  into->total += from->total;
  if (from->most > into->most)
    into->most = from->most;
}

uint64_t histogram_at(const struct histogram *histogram, double quantile) {
  uint64_t rank = (uint64_t)ceil(quantile * (double)histogram->count), seen = 0;
  if (rank == 0)
    rank = 1;
  for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
    seen += histogram->buckets[i];
    if (seen >= rank) {
      uint64_t value = histogram_value(i);
      return value < histogram->most ? value : histogram->most;
    }
  }
  return 0;
}

double histogram_mean(const struct histogram *histogram) {
  return histogram->count > 0 ? (double)histogram->total / (double)histogram->count : 0;
}
