/* x86-64 with AVX2, FMA and F16C. */
#if defined(__x86_64__)
#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")

#include "micro_avx2.h"

/* The instruction for u8 with s8 adds two products in 16 bits, where those of INT8 do not fit: INT8 is multiplied as
 * 16 bits. */
#define HAS_WORDS
static inline __attribute__((always_inline)) counts multiply_words(counts sum, counts w, counts x) {
  counts products;
  __asm__("vpmaddwd %3, %2, %0\n\tvpaddd %0, %1, %1" : "=&x"(products), "+x"(sum) : "x"(w), "x"(x));
  return sum;
}

/* Those of codes up to 3 do, and so do a group's: 32 steps of two products of at most 3 * 128 are at most 24576. The
 * compiler would add up products before it adds them to sums, more of them than there are registers. */
#define GROUP_SUMS
static inline __attribute__((always_inline)) counts multiply_codes(counts sum, counts w, counts x) {
  sum = (counts)_mm256_add_epi16((__m256i)sum, _mm256_maddubs_epi16((__m256i)w, (__m256i)x));
  __asm__("" : "+x"(sum));
  return sum;
}

static inline __attribute__((always_inline)) counts group_sum(counts sum) {
  return (counts)_mm256_madd_epi16((__m256i)sum, _mm256_set1_epi16(1));
}

#include "micro_avx2_direct.h"
#include "micro_interleaved.h"
#include "micro_set.h"

#pragma GCC pop_options

static bool usable(void) {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

MICRO_AVX2(micro_avx2, "avx2", usable);
#else
typedef int micro_avx2_is_for_x86;
#endif
