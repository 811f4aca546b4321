#include "random.h"

#include <math.h>

/* In (0, 1]. */
static double uniform(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return ((double)(*state >> 11) + 1) / 9007199254740992.0;
}

float random_normal(uint64_t *state) {
  double radius = sqrt(-2 * log(uniform(state)));
  return (float)(radius * cos(6.283185307179586 * uniform(state)));
}
