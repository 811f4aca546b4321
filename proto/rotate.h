/* The rotation of GEMM_INPUT_ROTATE: groups of 4^stages neighbours times the regular Hadamard matrix of that size,
 * which is the Kronecker power of 1  1  1 -1 1  1 -1  1 1 -1  1  1 -1  1  1  1 over 2^stages. It is symmetric, and its
 * own inverse (ConvRot, arXiv 2512.03673). One stage a power, from neighbours outwards, every sum in this order in f32,
 * so that codes made of it are the same on all backends. What is beyond f32 is not finite, as is a group with an
 * element that is not. */
#pragma once

#include <stdint.h>

/* Four elements, `stride` apart. */
static inline void rotate_four(float *values, int64_t stride) {
  float a = values[0], b = values[stride], c = values[2 * stride], d = values[3 * stride];
  float sum = a + b, gap = a - b, more = c + d, less = c - d;
  values[0] = sum + less;
  values[stride] = sum - less;
  values[2 * stride] = gap + more;
  values[3 * stride] = more - gap;
}

/* `count` is a multiple of 4^stages. */
static inline void rotate_groups(float *values, int64_t count, uint32_t stages) {
  float by = 1;
  for (int64_t stride = 1; stages > 0; stages--, stride *= 4, by *= 0.5f) {
    for (int64_t first = 0; first < count; first += 4 * stride) {
      for (int64_t i = 0; i < stride; i++) {
        rotate_four(values + first + i, stride);
      }
    }
  }
  for (int64_t i = 0; i < count && by != 1; i++) {
    values[i] *= by;
  }
}
