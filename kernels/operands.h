/* Numbers that kernels are tried with, by whoever races them (race.h): the same at each place on every machine. Pure.
 */
#pragma once

#include "../proto/gemm.h"

#include <stdint.h>

/* Kinds of rows: ordinary, with outliers, zeros, small, alternating about one. As many as no block has rows. */
enum { OPERANDS_KINDS = 5 };

/* In -1..1, one value a place. */
float operands_uniform(uint64_t place);
float operands_value(int kind, uint64_t place);
/* Element i of `data` becomes the value in that type: codes of INT8 with the scale 1/32, of E4M3 as they round. */
void operands_put(void *data, int64_t i, enum gemm_type type, float value);
/* Elements of F32, F16, BF16 or S32, many at a time: a call for each would take most of a comparison. */
void operands_widen(const void *data, int64_t first, int count, enum gemm_type type, double *out);
