/* x86-64 with AVX-512 and its integer dot products (servers since 2019). */
#if defined(__x86_64__)
#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")

#define HAS_VNNI
#define NO_REALS
#include "micro_avx512.h"

#pragma GCC pop_options

static bool usable(void) {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}

MICRO_OWN_INTEGERS(micro_avx512_vnni, "avx512-vnni", usable)
#else
typedef int micro_avx512_vnni_is_for_x86;
#endif
