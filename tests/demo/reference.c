#include "reference.h"

#include <math.h>

static double dot(const float *a, const float *b, int64_t k) {
  double sum = 0;
  for (int64_t i = 0; i < k; i++)
    sum += (double)a[i] * (double)b[i];
  return sum;
}

void reference_product(const float *x, const float *w, int64_t m, int64_t n, int64_t k, double *y) {
  for (int64_t row = 0; row < m; row++) {
    for (int64_t column = 0; column < n; column++)
      y[row * n + column] = dot(x + row * k, w + column * k, k);
  }
}

void reference_scaled_product(const float *x, const double *x_scale, const float *w, const double *w_scale, int64_t m,
                              int64_t n, int64_t k, double *y) {
  reference_product(x, w, m, n, k, y);
  for (int64_t row = 0; row < m; row++) {
    for (int64_t column = 0; column < n; column++)
      y[row * n + column] *= x_scale[row] * w_scale[column];
  }
}

static float absmax(const float *row, int64_t k) {
  float most = 0;
  for (int64_t i = 0; i < k; i++)
    most = fmaxf(most, fabsf(row[i]));
  return most;
}

/* The scale of a row; below 2^-126 all codes and the scale are 0. */
static float row_scale(const float *row, int64_t k, float largest_code) {
  float scale = absmax(row, k) / largest_code;
  return scale < 0x1p-126f ? 0 : scale;
}

/* Nearest even in e4m3: 3 bits behind the leading one, steps of 2^-9 below 2^-6, at most 448. */
static float round_e4m3(float value) {
  int exponent;
  frexpf(value, &exponent); /* |value| in [2^(exponent-1), 2^exponent) */
  float step = ldexpf(1, exponent - 4 > -9 ? exponent - 4 : -9);
  float rounded = rintf(value / step) * step;
  return fminf(fmaxf(rounded, -448), 448);
}

void reference_quantize_int8(const float *rows, int64_t count, int64_t k, float *codes, double *scales) {
  for (int64_t row = 0; row < count; row++) {
    float scale = row_scale(rows + row * k, k, 127);
    scales[row] = (double)scale;
    for (int64_t i = 0; i < k; i++)
      codes[row * k + i] = scale > 0 ? fminf(fmaxf(rintf(rows[row * k + i] / scale), -127), 127) : 0;
  }
}

void reference_quantize_e4m3(const float *rows, int64_t count, int64_t k, float *codes, double *scales) {
  for (int64_t row = 0; row < count; row++) {
    float scale = row_scale(rows + row * k, k, 448);
    scales[row] = (double)scale;
    for (int64_t i = 0; i < k; i++)
      codes[row * k + i] = scale > 0 ? round_e4m3(rows[row * k + i] / scale) : 0;
  }
}

double reference_error(const float *y, const double *reference, int64_t m, int64_t n) {
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < m * n; i++) {
    double d = (double)y[i] - reference[i];
    difference += d * d;
    norm += reference[i] * reference[i];
  }
  /* A product that is 0 throughout must be met exactly. */
  if (norm == 0)
    return difference == 0 ? 0 : INFINITY;
  return sqrt(difference / norm);
}

double reference_worst_row(const float *y, const double *reference, int64_t m, int64_t n) {
  double worst = 0;
  for (int64_t row = 0; row < m; row++) {
    double error = reference_error(y + row * n, reference + row * n, 1, n);
    if (!(error <= worst)) /* NaN too */
      worst = error;
    if (isnan(worst))
      return worst;
  }
  return worst;
}

/* Values of one group: multiples -1, 0, 1, 2 of its smallest magnitude, or all of them negated. */
static bool is_int2_group(const float *group, int64_t count) {
  float unit = INFINITY;
  for (int64_t i = 0; i < count; i++) {
    if (group[i] != 0)
      unit = fminf(unit, fabsf(group[i]));
  }
  bool twice = false, minus_twice = false;
  for (int64_t i = 0; i < count; i++) {
    float multiple = group[i] / unit;
    if (multiple == 2)
      twice = true;
    else if (multiple == -2)
      minus_twice = true;
    else if (multiple != 0 && multiple != 1 && multiple != -1)
      return false;
  }
  return !(twice && minus_twice);
}

bool reference_is_int2(const float *w, int64_t n, int64_t k) {
  for (int64_t row = 0; row < n; row++) {
    for (int64_t begin = 0; begin < k; begin += 128) {
      if (!is_int2_group(w + row * k + begin, k - begin < 128 ? k - begin : 128))
        return false;
    }
  }
  return true;
}
