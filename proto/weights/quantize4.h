/* Codes of 4 bits from real numbers, a group at a time. Pure and deterministic; all input is finite. */
#pragma once

#include "../gemm.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How INT4 is made. Magnitudes are at most QUANTIZE_INT2_MOST where scales are f16. */
struct quantize4 {
  bool bf16;   /* scales; else f16 */
  bool zeros;  /* with a zero point; else code 8 stands for 0 */
  bool search; /* the least squared error of what is tried; else the range of the values alone */
};

/* Codes, one a byte, and the zero point, 8 where there are none. Returns the scale, rounded to its type; it may be
 * negative where codes are symmetric: -8 then stands for the largest value. A scale that rounds to 0 makes all 0. */
float quantize_int4(const struct quantize4 *how, const float *values, size_t count, uint8_t *codes, uint8_t *zero);
/* The factor of all scales of a tensor of NVFP4, with which the scale of its largest magnitude is the largest of e4m3.
 */
float quantize_nvfp4_factor(float absmax);
/* A group of a weight of 4 bits, whatever its format: codes, one a byte, and the zero point, which means something
 * where the scale mode has them. Returns the scale. `search`: the one with the least squared error. `factor`: of all
 * scales, for formats that have one. */
float quantize_group4(const struct gemm_weight *weight, bool search, float factor, const float *values, size_t count,
                      uint8_t *codes, uint8_t *zero);

/* Packs two codes a byte, the first in the low bits; the rest of the row's bytes are `padding`. */
void quantize_pack4(const uint8_t *codes, size_t count, uint8_t padding, uint8_t *packed, size_t packed_bytes);
