/* x86-64 with AVX-512 (the subset of 2017 servers and all since). */
#if defined(__x86_64__)
#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")

#include "micro_quantize.h"
#include "micro_widen.h"

#define LANES 16
#define PAIRS 32
typedef __m512 lanes;
typedef __m512i pairs, counts;

static inline __attribute__((always_inline)) lanes multiply_add(lanes sum, lanes x, lanes w) {
  return _mm512_fmadd_ps(x, w, sum);
}

static inline __attribute__((always_inline)) counts multiply_pairs(counts sum, pairs x, pairs w) {
  return _mm512_add_epi32(sum, _mm512_madd_epi16(x, w));
}

#include "micro_tile.h"

#pragma GCC pop_options

static bool usable(void) {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

MICRO_OPS(avx512, usable);
#else
typedef int micro_avx512_is_for_x86;
#endif
