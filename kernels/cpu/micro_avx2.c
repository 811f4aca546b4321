/* x86-64 with AVX2 and FMA. */
#if defined(__x86_64__)
#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#pragma GCC push_options
#pragma GCC target("avx2,fma")

#include "micro_quantize.h"
#include "micro_widen.h"

#define LANES 8
#define PAIRS 16
typedef __m256 lanes;
typedef __m256i pairs, counts;

static inline __attribute__((always_inline)) lanes multiply_add(lanes sum, lanes x, lanes w) {
  return _mm256_fmadd_ps(x, w, sum);
}

static inline __attribute__((always_inline)) counts multiply_pairs(counts sum, pairs x, pairs w) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(x, w));
}

#include "micro_tile.h"

#pragma GCC pop_options

static bool usable(void) {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

MICRO_OPS(avx2, usable);
#else
typedef int micro_avx2_is_for_x86;
#endif
