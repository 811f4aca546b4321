/* What the sets with 256-bit registers share. Text of micro_avx2*.c, which select the target, and define either
 * NO_REALS and multiply_integer, or HAS_WORDS and GROUP_SUMS with what goes with them. */
#pragma once

#ifndef NO_REALS
#define OWN_UNPACKING
#include "micro_quantize.h"
#include "micro_widen.h"
#endif

/* 12 sums, 2 vectors of W and one of x are 15 of the 16 registers. */
#define LANES 8
#define ROWS 6
#define VECTORS 2
#define FEW_VECTORS 4
/* A group, and 16 KiB of W: half of the smallest first cache. */
#define BLOCK_STEPS 128
#define BLOCKS_IN_CACHE true
typedef int32_t counts __attribute__((vector_size(32)));
typedef float lanes __attribute__((vector_size(32)));

/* Into the sum's own register: by itself gcc 12 moves the sums of unrolled steps until some live in memory. */
static inline __attribute__((always_inline)) lanes multiply_f32(lanes sum, lanes w, lanes x) {
  __asm__("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(w), "x"(x));
  return sum;
}

static inline __attribute__((always_inline)) lanes load_halves(const void *from) {
  return (lanes)_mm256_cvtph_ps(_mm_loadu_si128(from));
}

/* Of an index the instruction takes the low three bits. */
#define HAS_E2M1
static inline __attribute__((always_inline)) lanes twice_e2m1(counts code) {
  __m256 sign = (__m256)(code << 28 & (counts)_mm256_set1_epi32((int)0x80000000u));
  return (lanes)_mm256_xor_ps(_mm256_permutevar8x32_ps(_mm256_setr_ps(0, 1, 2, 3, 4, 6, 8, 12), (__m256i)code), sign);
}
