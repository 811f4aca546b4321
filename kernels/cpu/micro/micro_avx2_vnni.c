/* x86-64 with AVX2 and the integer dot products of AVX-VNNI (desktops since 2021, servers without AVX-512). */
#if defined(__x86_64__)
#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avxvnni")

#define NO_REALS
#include "micro.h"
#include "micro_avx2.h"

static inline __attribute__((always_inline)) counts multiply_integer(counts sum, counts w, counts x) {
  return (counts)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)w, (__m256i)x);
}

#include "micro_groups.h"
#include "micro_set.h"

#pragma GCC pop_options

static bool usable(void) {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
         __builtin_cpu_supports("avxvnni");
}

MICRO_OWN_INTEGERS(micro_avx2_vnni, "avx2-vnni", usable)
#else
typedef int micro_avx2_vnni_is_for_x86;
#endif
