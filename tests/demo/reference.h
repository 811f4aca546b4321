/* Products in float64, and the quantizers of the README's "Numbers", written again from that text: nothing here is
 * the daemon's code. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* y [m, n] = x [m, k] * w^T, w [n, k]. */
void reference_product(const float *x, const float *w, int64_t m, int64_t n, int64_t k, double *y);
/* The same with a factor for every row of x and of w; factors in float64, since their products are no f32. */
void reference_scaled_product(const float *x, const double *x_scale, const float *w, const double *w_scale, int64_t m,
                              int64_t n, int64_t k, double *y);

/* Each row: codes as numbers (int8: -127..127; e4m3: its value) and the row's scale. */
void reference_quantize_int8(const float *rows, int64_t count, int64_t k, float *codes, double *scales);
void reference_quantize_e4m3(const float *rows, int64_t count, int64_t k, float *codes, double *scales);

/* ||y - reference|| / ||reference||: of all rows together, and of the worst row. NaN where y has one. */
double reference_error(const float *y, const double *reference, int64_t m, int64_t n);
double reference_worst_row(const float *y, const double *reference, int64_t m, int64_t n);

/* Whether w [n, k] has, in every row and group of 128 columns, no values but -s, 0, s and 2s for one s. */
bool reference_is_int2(const float *w, int64_t n, int64_t k);
