#include "backoff.h"

enum { FIRST_MS = 5, MOST_MS = 500, NS_PER_MS = 1000000 };

int64_t backoff_ns(uint32_t attempt, uint32_t random) {
  int64_t ms = FIRST_MS;
  for (uint32_t i = 1; i < attempt && ms < MOST_MS; i++)
    ms *= 2;
  int64_t ns = (ms < MOST_MS ? ms : MOST_MS) * NS_PER_MS;
  return ns / 2 + (int64_t)random * ns / ((int64_t)1 << 32);
}
