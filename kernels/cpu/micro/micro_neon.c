/* 64-bit ARM with the dot products of ARMv8.2 (servers since 2019). */
#if defined(__aarch64__)
#include <arm_neon.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>

#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+dotprod")

#include "micro_quantize.h"
#include "micro_widen.h"

#define LANES 4
#define ROWS 8
#define VECTORS 2
typedef int32_t counts __attribute__((vector_size(16)));
typedef float lanes __attribute__((vector_size(16)));

static inline __attribute__((always_inline)) lanes multiply_f32(lanes sum, lanes w, lanes x) {
  return (lanes)vfmaq_f32((float32x4_t)sum, (float32x4_t)w, (float32x4_t)x);
}

/* The instruction takes s8 with s8: w - 128 with x, and 128 times the sum of x, which all columns of a row share. */
static inline __attribute__((always_inline)) counts multiply_integer(counts sum, counts w, counts x) {
  int8x16_t w_now = veorq_s8((int8x16_t)w, vdupq_n_s8(-128)), x_now = (int8x16_t)x;
  int32x4_t offset = vdotq_s32(vdupq_n_s32(0), vdupq_n_s8(-128), x_now);
  return (counts)vdotq_s32(vsubq_s32((int32x4_t)sum, offset), w_now, x_now);
}

/* Codes of 4 bits are s8 as well as u8. */
#define NIBBLES
static inline __attribute__((always_inline)) counts multiply_nibbles(counts sum, counts w, counts x) {
  return (counts)vdotq_s32((int32x4_t)sum, (int8x16_t)w, (int8x16_t)x);
}

static inline __attribute__((always_inline)) lanes load_halves(const void *from) {
  uint16x4_t bits;
  memcpy(&bits, from, sizeof bits);
  return (lanes)vcvt_f32_f16(vreinterpret_f16_u16(bits));
}

#include "micro_set.h"

#pragma GCC pop_options

static bool usable(void) {
  return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
}

MICRO_SET(micro_neon, "neon-dotprod", usable);
#else
typedef int micro_neon_is_for_arm;
#endif
