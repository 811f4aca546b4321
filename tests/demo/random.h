/* Repeatable random numbers. */
#pragma once

#include <math.h>
#include <stdint.h>

/* In (0, 1]. */
static inline double random_uniform(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return ((double)(*state >> 11) + 1) / 9007199254740992.0;
}

/* Any number but 0 begins a sequence. Mean 0, deviation 1. */
static inline float random_normal(uint64_t *state) {
  double radius = sqrt(-2 * log(random_uniform(state)));
  return (float)(radius * cos(6.283185307179586 * random_uniform(state)));
}
