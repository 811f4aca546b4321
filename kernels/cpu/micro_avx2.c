/* x86-64 with AVX2 and FMA. */
#if defined(__x86_64__)
#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")

#include "micro_avx2.h"

/* Even and odd bytes apart, as s16, which hold u8 and s8: the instruction for u8 with s8 saturates. */
static inline __attribute__((always_inline)) counts multiply_integer(counts sum, counts w, counts x) {
  __m256i low = _mm256_set1_epi16(0xff), w_now = (__m256i)w, x_now = (__m256i)x;
  __m256i even = _mm256_madd_epi16(_mm256_and_si256(w_now, low), _mm256_srai_epi16(_mm256_slli_epi16(x_now, 8), 8));
  __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(w_now, 8), _mm256_srai_epi16(x_now, 8));
  return sum + (counts)even + (counts)odd;
}

#include "micro_set.h"

#pragma GCC pop_options

static bool usable(void) {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

MICRO_SET(micro_avx2, "avx2", usable);
#else
typedef int micro_avx2_is_for_x86;
#endif
