#include "tally.h"

uint32_t tally_bucket(uint64_t value, uint64_t unit) {
  uint32_t bucket = 0;
  for (uint64_t bound = unit; value > bound && bucket < TALLY_BUCKETS - 1; bound <<= 1)
    bucket++;
  return bucket;
}
