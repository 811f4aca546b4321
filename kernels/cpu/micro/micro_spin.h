/* What a set multiplies with, on operands that stay where they are: the peak that tiles are compared with. Text of
 * micro_*.c, behind micro_tile.h. */
#pragma once

#include "micro_tile.h"

/* As many sums as hide the latency, which are few enough for 16 registers; operands from the first cache. */
#define SPIN_ROWS 6
#define SPIN_VECTORS 2
#define SPIN(kind, type, w_type, per_lane, multiply)                                                                   \
  static int64_t spin_##kind(int64_t rounds) {                                                                         \
    type sum[SPIN_ROWS][SPIN_VECTORS] = {{{0}}};                                                                       \
    w_type x[SPIN_ROWS] = {{0}}, w[SPIN_VECTORS] = {{0}};                                                              \
    for (int64_t round = 0; round < rounds; round++) {                                                                 \
      __asm__ volatile("" : "+m"(x), "+m"(w));                                                                         \
      UNROLL for (int row = 0; row < SPIN_ROWS; row++) {                                                               \
        UNROLL for (int v = 0; v < SPIN_VECTORS; v++) {                                                                \
          sum[row][v] = multiply(sum[row][v], w[v], x[row]);                                                           \
        }                                                                                                              \
      }                                                                                                                \
    }                                                                                                                  \
    type total = {0};                                                                                                  \
    UNROLL for (int i = 0; i < SPIN_ROWS * SPIN_VECTORS; i++) {                                                        \
      total += sum[i / SPIN_VECTORS][i % SPIN_VECTORS];                                                                \
    }                                                                                                                  \
    __asm__ volatile("" : "+m"(total));                                                                                \
    return rounds * SPIN_ROWS * SPIN_VECTORS * LANES * per_lane;                                                       \
  }

#ifndef NO_REALS
SPIN(f32, lanes, lanes, 1, multiply_f32)
#endif
#ifdef NO_INTEGERS
#elif defined(HAS_WORDS)
SPIN(words, counts, counts, 2, multiply_words)
#define SPIN_INTEGER .spin[MICRO_WORDS] = spin_words
#else
SPIN(integer, counts, counts, 4, multiply_integer)
#define SPIN_INTEGER .spin[MICRO_INTEGER] = spin_integer
#endif
#ifdef NO_INTEGERS
#elif defined(GROUP_SUMS)
SPIN(codes, counts, counts, 4, multiply_codes)
#define SPIN_CODES .spin[MICRO_SPIN_CODES] = spin_codes
#else
#define SPIN_CODES .spin[MICRO_SPIN_CODES] = spin_integer
#endif
#ifdef HAS_BF16
SPIN(bf16, lanes, counts, 2, multiply_bf16)
#endif

#define MICRO_SPIN_FIELDS SPIN_INTEGER, SPIN_CODES, .spin[MICRO_F32] = spin_f32
