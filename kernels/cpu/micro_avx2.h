/* What the sets with 256-bit registers share. Text of micro_avx2*.c, which select the target. */
#ifndef KERNELS_CPU_MICRO_AVX2_H
#define KERNELS_CPU_MICRO_AVX2_H

#include "micro_quantize.h"
#include "micro_widen.h"

#define LANES 8
#define ROWS 4
#define VECTORS 2
typedef int32_t counts __attribute__((vector_size(32)));
typedef float lanes __attribute__((vector_size(32)));

static inline __attribute__((always_inline)) lanes multiply_f32(lanes sum, lanes w, lanes x) {
  return (lanes)_mm256_fmadd_ps((__m256)w, (__m256)x, (__m256)sum);
}

#endif
