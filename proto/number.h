/* Conversions between f32 and the short floating types, and the row quantizers' element rules. Exact, the same on
 * every backend; nearest even everywhere. Values are passed as their bit patterns. */
#pragma once

#include <stdint.h>

float number_from_f16(uint16_t bits);
uint16_t number_to_f16(float value); /* overflow becomes infinity, NaN stays NaN */
float number_from_bf16(uint16_t bits);
uint16_t number_to_bf16(float value);
float number_from_e4m3(uint8_t bits);
uint8_t number_to_e4m3(float value); /* saturates to +-448; NaN becomes 0x7f with the sign */

/* A power of two, 2^(bits - 127); 255 is NaN. Of a number the largest that is not above its magnitude, 2^-127 where
 * none is. */
float number_from_e8m0(uint8_t bits);
uint8_t number_to_e8m0(float value);

/* 4 bits: 0, 0.5, 1, 1.5, 2, 3, 4, 6, from 8 on their negatives. To nearest even, saturating; NaN becomes 6. */
float number_from_e2m1(uint8_t bits);
uint8_t number_to_e2m1(float value);

/* Scale of a row of activations or weights from the largest magnitude in it: absmax / 127 or absmax / 448 in f32;
 * 0 where that is below 2^-126; NaN where absmax is not finite. */
float number_scale_int8(float absmax);
float number_scale_e4m3(float absmax);
/* One element: rint(value / scale), nearest even, clamped to +-127; 0 where scale is 0 or NaN. */
int8_t number_quantize_int8(float value, float scale);
/* One element: value / scale as saturating e4m3; 0 where scale is 0 or NaN. */
uint8_t number_quantize_e4m3(float value, float scale);
