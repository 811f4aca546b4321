/* From real numbers to codes and scales, a row or a group at a time. Pure and deterministic; all input is finite. The
 * rules of an element are those of proto/number.h. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

float quantize_absmax(const float *values, size_t count);
/* Whether none is infinite or no number; of halves whose exponent's bits are `infinity`. */
bool quantize_finite(const float *values, size_t count);
bool quantize_finite_halves(const uint16_t *halves, size_t count, uint16_t infinity);
void quantize_int8(const float *values, size_t count, float scale, int8_t *codes);
void quantize_e4m3(const float *values, size_t count, float scale, uint8_t *codes);
/* To f16 or bf16 bits. Returns the index of the first value that overflows to infinity, `count` where none does; all
 * are written. */
size_t quantize_f16(const float *values, size_t count, uint16_t *out);
size_t quantize_bf16(const float *values, size_t count, uint16_t *out);

/* INT2: codes, one a byte, 0..3 for -1..2. Both return the scale, f16 bits, and all magnitudes must be at most
 * QUANTIZE_INT2_MOST, so that it is finite.
 *
 * The scale and codes with the least squared error of all. The scale may be negative: the one value of magnitude 2
 * then stands for -2. `scratch` holds 2 * count words. */
uint16_t quantize_least_squares(const float *values, size_t count, uint32_t *scratch, uint8_t *codes);
/* Scale: mean magnitude, or where all that is not 0 has one magnitude, that; codes: nearest of -1, 0, 1. */
uint16_t quantize_ternary(const float *values, size_t count, uint8_t *codes);

#define QUANTIZE_INT2_MOST 65504.0f /* the largest f16 */

/* Packs four codes a byte, the first in the lowest bits; the rest of the row's bytes stand for zeros (code 1). */
void quantize_pack(const uint8_t *codes, size_t count, uint8_t *packed, size_t packed_bytes);
