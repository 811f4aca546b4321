/* x86-64 with AVX-512, its integer and its bf16 dot products and byte permutations (servers since 2022). */
#if defined(__x86_64__)
#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16,avx512vbmi,avx2,fma,f16c")

#define HAS_BF16
#define NO_REALS
#define NO_INTEGERS
#include "micro_avx512.h"

#pragma GCC pop_options

static bool usable(void) {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16") &&
         __builtin_cpu_supports("avx512vbmi");
}

void micro_avx512_bf16(struct micro_ops *ops);
void micro_avx512_bf16(struct micro_ops *ops) {
  ops->name = "avx512-bf16";
  ops->usable = usable;
  ops->tile[MICRO_BF16][MICRO_DWORDS] = tile_bf16;
  ops->tile[MICRO_BF16][MICRO_E4M3] = tile_e4m3;
  ops->unpack_e4m3_bf16 = unpack_e4m3_bf16;
  ops->spin[MICRO_BF16] = spin_bf16;
}
#else
typedef int micro_avx512_bf16_is_for_x86;
#endif
