/* Any machine: vectors of 128 bits, which the compiler turns into SSE2, NEON or scalars. */
#include "micro.h"

#include "micro_quantize.h"
#include "micro_widen.h"

#define LANES 4
#define ROWS 4
#define VECTORS 2
#define UNROLL_CHUNK
typedef int32_t counts __attribute__((vector_size(16)));
typedef float lanes __attribute__((vector_size(16)));

static inline __attribute__((always_inline)) lanes multiply_f32(lanes sum, lanes w, lanes x) {
  return sum + x * w;
}

static inline __attribute__((always_inline)) counts multiply_integer(counts sum, counts w, counts x) {
  for (int shift = 0; shift < 32; shift += 8) {
    sum += (w >> shift & 0xff) * (x << (24 - shift) >> 24);
  }
  return sum;
}

static inline __attribute__((always_inline)) lanes load_halves(const void *from) {
  uint16_t bits[LANES];
  float values[LANES];
  lanes out;
  memcpy(bits, from, sizeof(bits));
  widen_f16(bits, values, LANES);
  memcpy(&out, values, sizeof(out));
  return out;
}

#include "micro_set.h"

static bool usable(void) {
  return true;
}

MICRO_SET(micro_generic, "generic", usable);
