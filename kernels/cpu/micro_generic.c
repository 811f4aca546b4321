/* Any machine: vectors of 128 bits, which the compiler turns into SSE2, NEON or scalars. */
#include "micro.h"

#include "micro_quantize.h"
#include "micro_widen.h"

#define LANES 4
#define PAIRS 4
typedef float lanes __attribute__((vector_size(16)));
typedef int16_t pairs __attribute__((vector_size(8)));
typedef int32_t counts __attribute__((vector_size(16)));

static inline __attribute__((always_inline)) lanes multiply_add(lanes sum, lanes x, lanes w) {
  return sum + x * w;
}

static inline __attribute__((always_inline)) counts multiply_pairs(counts sum, pairs x, pairs w) {
  return sum + __builtin_convertvector(x, counts) * __builtin_convertvector(w, counts);
}

#include "micro_tile.h"

static bool usable(void) {
  return true;
}

MICRO_OPS(generic, usable);
