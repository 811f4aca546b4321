/* Zero points of f16 in tiles, which hold an integer in the place of each: the nearest that a code can be, or 0. What
 * that leaves lies behind the tiles, [groups of a row][rows] words: a scale in the low half, the rest, an f16, in the
 * high one. Pure. */
#pragma once

#include "../../../../../proto/gemm.h"

/* The mode with integers in the place of f16. */
enum gemm_scale int4_integer_zeros(enum gemm_scale scale);

uint8_t int4_zero_code(float zero);
/* Of a scale's 16 bits and the zero point; exact. */
uint32_t int4_rest(uint16_t scale, float zero);
/* The zero point again. */
float int4_rest_zero(uint8_t code, uint32_t rest);
