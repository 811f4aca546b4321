#include "bare.h"

#include "clock.h"

enum { READING_NS = 200 }; /* of the clock, at most, a cache that has gone cold included */

void bare_measure(uint64_t work_ns, uint64_t run_ns, struct histogram *out) {
  uint64_t begin = clock_ns(), end = begin + run_ns, last = begin;
  while (last < end) {
    uint64_t worked = 0, from = last;
    while (worked < work_ns) {
      uint64_t now = clock_ns(), step = now - last;
      worked += step < READING_NS ? step : READING_NS;
      last = now;
    }
    histogram_add(out, last - from);
  }
}
