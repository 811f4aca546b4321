/* x86-64 with AVX-512 (the subset of 2017 servers and all since). */
#if defined(__x86_64__)
#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")

#include "micro_avx512.h"

#pragma GCC pop_options

static bool usable(void) {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

MICRO_AVX512(micro_avx512, "avx512", usable);
#else
typedef int micro_avx512_is_for_x86;
#endif
